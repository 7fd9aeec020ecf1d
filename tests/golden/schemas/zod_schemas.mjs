/* JSON Schemas that zod writes, one JSON line each: {"name", "schema"}. Run in a folder where zod is installed:
 *   node zod_schemas.mjs */
import { z } from "zod";

const int = z.int(), id = z.string().min(1).max(20);
const Node = z.object({ value: z.int(), get next() { return Node.nullable(); } });
const Tree = z.object({ name: z.string(), get children() { return z.array(Tree); } });
const Left = z.object({ get right() { return Right.optional(); } }), Right = z.object({ get left() { return Left.optional(); } });
const User = z.object({ id: z.uuid(), name: z.string() }).meta({ id: "User", title: "A user" });

const all = {
  string: z.string(), min: z.string().min(3), max: z.string().max(5), length: z.string().length(4), nonempty: z.string().nonempty(),
  regex: z.string().regex(/^[a-z]{2,4}$/), regex_digits: z.string().regex(/^\d{3}-\d{4}$/), regex_flag: z.string().regex(/^ab+c$/i),
  starts: z.string().startsWith("ab"), ends: z.string().endsWith("yz"), includes: z.string().includes("mid"),
  lowercase: z.string().lowercase(), uppercase: z.string().uppercase(), trim: z.string().trim(), two_patterns: z.string().startsWith("a").endsWith("z"),
  email: z.email(), email_html5: z.email({ pattern: z.regexes.html5Email }), email_rfc: z.email({ pattern: z.regexes.rfc5322Email }),
  email_unicode: z.email({ pattern: z.regexes.unicodeEmail }), uuid: z.uuid(), uuidv4: z.uuidv4(), uuidv6: z.uuidv6(), uuidv7: z.uuidv7(), guid: z.guid(), url: z.url(), http_url: z.httpUrl(),
  emoji: z.emoji(), nanoid: z.nanoid(), cuid: z.cuid(), cuid2: z.cuid2(), ulid: z.ulid(), xid: z.xid(), ksuid: z.ksuid(),
  ipv4: z.ipv4(), ipv6: z.ipv6(), mac: z.mac(), cidrv4: z.cidrv4(), cidrv6: z.cidrv6(), base64: z.base64(), base64url: z.base64url(),
  e164: z.e164(), jwt: z.jwt(), hostname: z.hostname(), hex: z.hex(), hash_md5: z.hash("md5"), hash_sha256: z.hash("sha256"), hash_sha512: z.hash("sha512"),
  iso_date: z.iso.date(), iso_time: z.iso.time(), iso_time_minute: z.iso.time({ precision: -1 }), iso_time_ms: z.iso.time({ precision: 3 }),
  iso_datetime: z.iso.datetime(), iso_datetime_offset: z.iso.datetime({ offset: true }), iso_datetime_local: z.iso.datetime({ local: true }),
  iso_datetime_ms: z.iso.datetime({ precision: 3 }), iso_duration: z.iso.duration(), string_format: z.stringFormat("lower", /^[a-z]+$/),
  number: z.number(), int, int_old: z.number().int(), safe: z.number().safe(), int32: z.int32(), uint32: z.uint32(), float32: z.float32(), float64: z.float64(),
  positive: z.number().positive(), negative: z.number().negative(), nonnegative: z.number().nonnegative(), nonpositive: z.number().nonpositive(),
  gt: z.number().gt(1.5), gte: z.number().gte(0.1), lt: z.number().lt(1e-7), lte: z.number().lte(2.5), between: z.number().min(0.1 + 0.2).max(1),
  large: z.number().max(1e21), huge: z.number().min(-1e300).max(1e300), tiny: z.number().gt(Number.MIN_VALUE), max_value: z.number().lte(Number.MAX_VALUE),
  int_range: z.int().min(1).max(100), int_positive: z.int().positive(), int_negative: z.int().negative(), int_nonnegative: z.int().nonnegative(),
  multiple: z.number().multipleOf(5), step: z.number().step(0.01), step_fine: z.number().multipleOf(1e-8), int_multiple: z.int().multipleOf(7), int_thousands: z.int().multipleOf(10000).min(0),
  step_range: z.number().multipleOf(0.25).min(0).max(10), day: z.int().multipleOf(86400), finite: z.number().finite(), age: z.number().int().min(0).max(150),
  boolean: z.boolean(), null: z.null(), any: z.any(), unknown: z.unknown(), never_member: z.object({ a: z.never().optional() }), nullable: z.string().nullable(), nullable_int: z.int().nullable(),
  optional: z.object({ a: z.string().optional(), b: z.int() }), nullish: z.object({ a: z.int().nullish() }), defaults: z.object({ a: z.int().default(5), b: z.string().default("x") }),
  prefault: z.object({ a: z.string().prefault("x") }), catch: z.object({ a: z.int().catch(0) }), readonly: z.object({ a: z.int() }).readonly(), brand: z.string().brand("x"),
  literal: z.literal("a"), literal_number: z.literal(5), literal_float: z.literal(0.1), literal_large: z.literal(9007199254740991), literals: z.literal(["a", 1, true, null]),
  enum: z.enum(["red", "green"]), enum_native: z.enum({ A: "a", B: "b" }), enum_numbers: z.enum({ Low: 1, High: 2 }), template: z.templateLiteral(["v", z.int(), "-", z.enum(["a", "b"])]),
  template_number: z.templateLiteral([z.number(), "px"]), template_string: z.templateLiteral(["id_", z.string()]), template_email: z.templateLiteral(["<", z.email(), ">"]), template_boolean: z.templateLiteral(["is-", z.boolean()]),
  object: z.object({ a: z.string(), b: z.number() }), strict: z.strictObject({ a: z.int() }), loose: z.looseObject({ a: z.int() }), catchall: z.object({ a: z.int() }).catchall(z.string()),
  nested: z.object({ a: z.object({ b: z.object({ c: z.int() }) }) }), empty: z.object({}), partial: z.object({ a: z.int(), b: z.string() }).partial(),
  pick: z.object({ a: z.int(), b: z.string() }).pick({ a: true }), omit: z.object({ a: z.int(), b: z.string() }).omit({ a: true }), extend: z.object({ a: z.int() }).extend({ b: z.boolean() }),
  array: z.array(z.string()), array_int: z.array(int), array_min: z.array(int).min(2), array_max: z.array(id).max(3), array_length: z.array(z.boolean()).length(2), array_nonempty: z.array(z.number()).nonempty(),
  array_deep: z.array(z.array(z.int())), tuple: z.tuple([z.string(), z.int()]), tuple_rest: z.tuple([z.string()], z.int()), tuple_empty: z.tuple([]), tuple_optional: z.tuple([z.string(), z.int().optional()]),
  record: z.record(z.string(), z.int()), record_enum: z.record(z.enum(["a", "b"]), z.int()), record_partial: z.partialRecord(z.enum(["a", "b"]), z.int()), record_pattern: z.record(z.string().regex(/^k_/), z.boolean()),
  record_email: z.record(z.email(), z.string()), record_number: z.record(z.number(), z.string()), record_literal: z.record(z.literal("x"), z.int()), record_loose: z.looseRecord(z.string().regex(/^x/), z.int()),
  union: z.union([z.string(), z.int()]), union_objects: z.union([z.object({ a: z.int() }), z.object({ b: z.string() })]), union_null: z.union([z.int(), z.null(), z.boolean()]),
  discriminated: z.discriminatedUnion("kind", [z.object({ kind: z.literal("a"), n: z.int() }), z.object({ kind: z.literal("b"), s: z.string() })]), xor: z.xor([z.object({ a: z.int() }), z.object({ b: z.int() })]),
  xor_scalars: z.xor([z.string(), z.int()]), intersection: z.intersection(z.object({ a: z.int() }), z.object({ b: z.string() })), and: z.object({ a: z.int() }).and(z.object({ a: z.int().min(5) })), intersection_number: z.number().min(1).and(z.number().max(9007199254740991)),
  recursive: Node, recursive_tree: Tree, mutual: Left, lazy: z.lazy(() => z.union([z.int(), z.array(z.lazy(() => z.int()))])), json: z.json(), meta: User, meta_twice: z.object({ a: User, b: User }), meta_array: z.array(User),
  describe: z.string().describe("a word"), reused: z.object({ a: id, b: id }), refine: z.string().refine((s) => s.length > 1), pipe: z.string().pipe(z.email()), stringbool: z.stringbool(), file_free: z.object({ name: z.string() }),
  preprocess: z.preprocess((v) => v, z.int()), coerce: z.coerce.number(), coerce_string: z.coerce.string(), codec: z.codec(z.iso.datetime(), z.int(), { decode: () => 1, encode: () => "" }),
  success: z.object({ ok: z.literal(true), data: z.array(z.int().positive()) }), page: z.object({ items: z.array(User), total: z.int().nonnegative(), cursor: z.string().nullable() }),
  money: z.object({ cents: z.int().nonnegative(), rate: z.number().min(0).max(1), currency: z.enum(["EUR", "USD"]) }), event: z.object({ at: z.iso.datetime(), kind: z.enum(["a", "b"]), tags: z.array(z.string()).max(5), n: z.int32() }),
  keyof: z.keyof(z.object({ a: z.int(), b: z.int() })), exclude: z.enum(["a", "b", "c"]).exclude(["a"]), nonoptional: z.object({ a: z.nonoptional(z.int().optional()) }),
};

for (const [name, schema] of Object.entries(all)) {
  for (const [target, options] of [["", {}], ["input", { io: "input" }], ["draft-7", { target: "draft-7" }], ["draft-4", { target: "draft-4" }], ["openapi-3.0", { target: "openapi-3.0" }], ["ref", { reused: "ref" }]]) {
    const text = (o) => { try { return JSON.stringify(z.toJSONSchema(schema, o)); } catch (e) { return null; } };
    const made = text(options), plain = target === "" ? null : text({});
    const bare = (s) => s && s.replace(/"\$schema":"[^"]*",?/, "");
    if (made === null && target === "") process.stderr.write(`${name}: zod writes no schema\n`);
    if (made !== null && bare(made) !== bare(plain)) console.log(JSON.stringify({ name: target ? `${name} ${target}` : name, schema: JSON.parse(made) }));
  }
}
