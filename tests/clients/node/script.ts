// A script as people write it for TypeScriptToLua: compiled only, against the definitions that the server prints.

const count: number = redis.call("INCRBY", KEYS[0], ARGV[0]);
if (count === 1) {
  redis.call("pexpire", KEYS[0], 1000);
}
redis.log(redis.LOG_NOTICE, cjson.encode({ count }));
// @ts-expect-error a command has arguments that are texts or numbers
server.pcall("SET", KEYS[0], {});
redis.call("DEL", ...KEYS);
redis.call("SADD", KEYS[0], ...ARGV);
redis.call("SET", KEYS[0], 1, "EX", 10);
redis.call(ARGV[1], KEYS[0]);
// @ts-expect-error GET has one argument
redis.call("GET", KEYS[0], KEYS[1]);
// @ts-expect-error SET has at least two
redis.pcall("SET", KEYS[0]);
// @ts-expect-error there is no such function
redis.cal("GET", KEYS[0]);
