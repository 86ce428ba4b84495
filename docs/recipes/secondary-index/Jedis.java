import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.TreeSet;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisDataException;

class Users {
    private final Jedis jedis;
    private final String sha;

    Users(Jedis jedis, String lua) {
        this.jedis = jedis;
        this.sha = jedis.scriptLoad(lua);
    }

    void save(int id, String email, String city) {
        List<String> keys = List.of("user:" + id, "users:by-email", "users:in:" + city);
        jedis.evalsha(sha, keys, List.of(String.valueOf(id), email, city));
    }

    void show(String city) {
        System.out.println(city + ": " + String.join(" ", new TreeSet<>(jedis.smembers("users:in:" + city))));
    }

    public static void main(String[] args) throws Exception {
        String url = System.getenv().getOrDefault("REDIS_URL", "redis://127.0.0.1:6379");
        try (Jedis jedis = new Jedis(url)) {
            Users users = new Users(jedis, Files.readString(Path.of("script.lua")));
            users.save(1, "a@example.com", "Oslo");
            try {
                users.save(2, "a@example.com", "Oslo");
            } catch (JedisDataException error) {
                System.out.println(error.getMessage());
            }
            users.save(2, "b@example.com", "Oslo");
            users.show("Oslo");
            users.save(1, "a@example.com", "Rome");
            users.show("Oslo");
            users.show("Rome");
            System.out.println("b@example.com: " + jedis.hget("users:by-email", "b@example.com"));
        }
    }
}
