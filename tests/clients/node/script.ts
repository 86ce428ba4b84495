// A script as people write it for TypeScriptToLua: compiled only, against the definitions that the server prints.

const count: number = redis.call("INCRBY", KEYS[0], ARGV[0]);
if (count === 1) {
  redis.call("pexpire", KEYS[0], 1000);
}
redis.log(redis.LOG_NOTICE, cjson.encode({ count }));
// @ts-expect-error a command has arguments that are texts or numbers
server.pcall("SET", KEYS[0], {});
// @ts-expect-error there is no such function
redis.cal("GET", KEYS[0]);
