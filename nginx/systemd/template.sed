# Makes the units of one model into those of several: infcgi@NAME.service with /etc/infcgi/NAME.conf and /run/infcgi/NAME.sock.
/^# *or, so that/d
/^# *INFCGI_/d
s|^# The engine: .*|# One engine of several: infcgi@NAME has its options in /etc/infcgi/NAME.conf, its socket is /run/infcgi/NAME.sock.|
s|^# Holds the socket, |&one for each infcgi@NAME.service, |
s|which has the model\. Options in .*||
s|^Description=.*|&, %i|
s|infcgi\.socket|infcgi@%i.socket|
s|/etc/default/infcgi|/etc/default/infcgi-%i|
s|serve --master|serve --master --config /etc/infcgi/%i.conf|
s|infcgi-ctl|infcgi-ctl-%i|
s|^CacheDirectory=infcgi|&-%i|
s|^LogsDirectory=infcgi|&-%i|
s|/var/cache/infcgi|&-NAME|
s|/var/log/infcgi|&-NAME|
s|infcgi ctl  |infcgi ctl --socket /run/infcgi-ctl-NAME/admin.sock|
s|/run/infcgi/infcgi\.sock|/run/infcgi/%i.sock|
s| infcgi$| infcgi@NAME|
