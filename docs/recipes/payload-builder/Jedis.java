import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import redis.clients.jedis.Jedis;

class Timeline {
    private final Jedis jedis;
    private final String sha;

    Timeline(Jedis jedis, String lua) {
        this.jedis = jedis;
        this.sha = jedis.scriptLoad(lua);
    }

    JsonArray page(int skip) {
        Object text = jedis.evalsha(sha, List.of("timeline"), List.of(String.valueOf(skip), "10"));
        return JsonParser.parseString(text.toString()).getAsJsonArray();
    }

    public static void main(String[] args) throws Exception {
        String url = System.getenv().getOrDefault("REDIS_URL", "redis://127.0.0.1:6379");
        try (Jedis jedis = new Jedis(url)) {
            jedis.hset("user:1", "name", "Ada");
            jedis.hset("user:2", "name", "Bob");
            jedis.hset("post:10", Map.of("author", "1", "text", "first", "likes", "7"));
            jedis.hset("post:11", Map.of("author", "2", "text", "second", "likes", "0"));
            jedis.zadd("timeline", Map.of("10", 1000.0, "11", 2000.0, "12", 1500.0));

            Timeline timeline = new Timeline(jedis, Files.readString(Path.of("script.lua")));
            for (JsonElement element : timeline.page(0)) {
                JsonObject post = element.getAsJsonObject();
                String author = post.get("author").getAsString();
                String text = post.get("text").getAsString();
                System.out.println(author + ": " + text + " (" + post.get("likes") + " likes)");
            }
            System.out.println(timeline.page(10).size() + " posts");
        }
    }
}
