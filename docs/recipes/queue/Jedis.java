import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import redis.clients.jedis.Jedis;

class Queue {
    private static final List<String> KEYS =
            List.of("{mail}:waiting", "{mail}:working", "{mail}:payloads", "{mail}:last");
    private final Jedis jedis;
    private final String sha;

    Queue(Jedis jedis, String lua) {
        this.jedis = jedis;
        this.sha = jedis.scriptLoad(lua);
    }

    long put(String payload) {
        return (long) jedis.evalsha(sha, KEYS, List.of("put", payload));
    }

    /** Id, payload and deadline of a job that has to be done in 30 seconds, or null. */
    List<?> take() {
        return (List<?>) jedis.evalsha(sha, KEYS, List.of("take", "30000"));
    }

    boolean done(List<?> job) {
        List<String> args = List.of("done", job.get(0).toString(), job.get(2).toString());
        return jedis.evalsha(sha, KEYS, args).equals(1L);
    }

    public static void main(String[] args) throws Exception {
        String url = System.getenv().getOrDefault("REDIS_URL", "redis://127.0.0.1:6379");
        try (Jedis jedis = new Jedis(url)) {
            Queue queue = new Queue(jedis, Files.readString(Path.of("script.lua")));
            for (String name : List.of("ada", "bob")) {
                System.out.println("put " + queue.put("welcome " + name));
            }
            List<?> job = queue.take();
            System.out.println("job " + job.get(0) + ": " + job.get(1));
            System.out.println("done: " + queue.done(job));
            System.out.println("done again: " + queue.done(job));
            List<?> next = queue.take();
            System.out.println("job " + next.get(0) + ": " + next.get(1));
            if (queue.take() == null) System.out.println("no job");
        }
    }
}
