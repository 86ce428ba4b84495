import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import redis.clients.jedis.Jedis;

class RateLimiter {
    private final Jedis jedis;
    private final String sha;

    RateLimiter(Jedis jedis, String lua) {
        this.jedis = jedis;
        this.sha = jedis.scriptLoad(lua);
    }

    /** At most 3 requests at once, and 3 in a minute. */
    boolean allow(String user) {
        List<String> limits = List.of("3", String.valueOf(3.0 / 60), "1");
        List<?> reply = (List<?>) jedis.evalsha(sha, List.of("limit:" + user), limits);
        return reply.get(0).equals(1L);
    }

    public static void main(String[] args) throws Exception {
        String url = System.getenv().getOrDefault("REDIS_URL", "redis://127.0.0.1:6379");
        try (Jedis jedis = new Jedis(url)) {
            RateLimiter limiter = new RateLimiter(jedis, Files.readString(Path.of("script.lua")));
            for (String user : List.of("ada", "ada", "ada", "ada", "bob")) {
                System.out.println(user + ": " + (limiter.allow(user) ? "allowed" : "refused"));
            }
        }
    }
}
