/* Requests for which there is no memory: any one allocation, or none from one on. Each is answered, and the next is as ever. */
#include "engine/base/json_read.h"
#include "engine/base/mem.h"
#include "tests/unit/fcgi/fcgi_rig.h"

#include <check.h>
#include <string.h>

Suite *call_memory_suite(void);

static const struct {
    const char *method, *uri, *body, *end; /* end: what an answer holds only when it is whole */
} requests[] = {
    {"POST", "/v1/chat/completions", "{'messages':[{'role':'user','content':'Hi'}],'max_tokens':3,'temperature':0}",
     "\"usage\":"},
    {"POST", "/v1/chat/completions",
     "{'messages':[{'role':'user','content':'Hi'}],'max_tokens':3,'temperature':0,'stream':true}", "[DONE]"},
    {"POST", "/v1/completions",
     "{'prompt':['a','b'],'n':2,'best_of':2,'max_tokens':2,'logprobs':2,'echo':true,'stop':['xyz'],'seed':1,'ignore_eos':true}",
     "\"usage\":"},
    {"POST", "/v1/completions",
     "{'prompt':'a','max_tokens':12,'stream':true,'json_schema':{'enum':['abc',17]},'temperature':0}", "[DONE]"},
    {"POST", "/v1/messages",
     "{'model':'tiny','messages':[{'role':'user','content':'Hi'}],'max_tokens':3,'stream':true}", "message_stop"},
    {"POST", "/v1/responses", "{'input':'Hi','max_output_tokens':3,'temperature':0,'stream':true,'store':false}",
     "event: response.incomplete"},
    {"POST", "/api/chat", "{'messages':[{'role':'user','content':'Hi'}],'options':{'num_predict':3}}", "\"done\":true"},
    {"POST", "/tokenize", "{'content':'Hi there'}", "\"count\":"},
    {"GET", "/v1/models", "", "]}"},
    {"GET", "/metrics", "", "infcgi_wait_seconds_total{"},
};

static bool tells_error(void)
{
    return strstr(rig_got.body, "\"error\":{") != NULL || strstr(rig_got.body, "\"error\":\"") != NULL;
}

/* What was answered, judged: an answer, or an error in the form that the URL's have; never both, nor half of one. */
static void judge(size_t i, long n, bool fired)
{
    const char *body = rig_got.body;
    ck_assert_msg(rig_got.has_end && body != NULL && strstr(body, "Status:") == NULL, "%s, %ld: %s", requests[i].uri, n,
                  rig_got.raw.data);
    bool is_stream = strstr(rig_got.raw.data, "text/event-stream") != NULL, has_error = tells_error();
    if (rig_got.status == 200) {
        ck_assert_msg(has_error != (strstr(body, requests[i].end) != NULL), "%s, %ld: %s", requests[i].uri, n, body);
    } else {
        ck_assert_msg(fired && !is_stream && rig_answer != NULL && json_object_get(rig_answer, "error") != NULL,
                      "%s, %ld: %d %s", requests[i].uri, n, rig_got.status, body);
        ck_assert_msg(rig_got.status == 500 || rig_got.status == 503, "%s, %ld: %d %s", requests[i].uri, n,
                      rig_got.status, body);
    }
}

static int ask(size_t i)
{
    char body[512];
    rig_quotes(requests[i].body, body);
    return rig_ask(requests[i].method, requests[i].uri, NULL, body, strlen(body));
}

/* Fails each allocation of the request, one a try; is_lasting: and all after it. */
static void fail_each(size_t i, bool is_lasting)
{
    long n = 0, n_refused = 0;
    for (bool fired = true; fired; n += is_lasting ? 1 + n / 20 : 1) {
        mem_fail_elsewhere(n, is_lasting);
        (void)ask(i);
        fired = mem_fault_fired();
        mem_fail_at(-1);
        judge(i, n, fired);
        n_refused += rig_got.status != 200;
        ck_assert_int_lt(n, 20000);
    }
    ck_assert_msg(n_refused > 3, "%s", requests[i].uri);
}

START_TEST(each_request_is_answered_and_the_next_as_ever)
{
    size_t i = (size_t)_i / 2;
    json_number_use_mem();
    rig_serve(false, false);
    ck_assert_int_eq(ask(i), 200);
    fail_each(i, _i % 2 != 0);
    ck_assert_int_eq(ask(i), 200);
    ck_assert(!tells_error());
    rig_unserve();
    ck_assert_uint_eq(mem_live_of(MEM_REQUEST), 0);
}
END_TEST

Suite *call_memory_suite(void)
{
    Suite *s = suite_create("call_memory");
    TCase *c = tcase_create("call_memory");
    tcase_set_tags(c, "fork");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, each_request_is_answered_and_the_next_as_ever, 0, 2 * (int)ARRAY_LEN(requests));
    suite_add_tcase(s, c);
    return s;
}
