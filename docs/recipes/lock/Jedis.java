import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import redis.clients.jedis.Jedis;

class Lock {
    private static final List<String> KEYS = List.of("{report}:lock", "{report}:token");
    private final Jedis jedis;
    private final String sha;

    Lock(Jedis jedis, String lua) {
        this.jedis = jedis;
        this.sha = jedis.scriptLoad(lua);
    }

    void acquire(String owner) {
        Object token = jedis.evalsha(sha, KEYS, List.of("acquire", owner, "30000"));
        System.out.println(owner + ": " + (token == null ? "held by another owner" : "token " + token));
    }

    void release(String owner) {
        Object released = jedis.evalsha(sha, KEYS, List.of("release", owner));
        System.out.println(owner + ": " + (released.equals(1L) ? "released" : "not the owner"));
    }

    public static void main(String[] args) throws Exception {
        String url = System.getenv().getOrDefault("REDIS_URL", "redis://127.0.0.1:6379");
        try (Jedis jedis = new Jedis(url)) {
            Lock lock = new Lock(jedis, Files.readString(Path.of("script.lua")));
            lock.acquire("ada");
            lock.acquire("bob");
            lock.release("ada");
            lock.acquire("bob");
            lock.release("ada");
        }
    }
}
