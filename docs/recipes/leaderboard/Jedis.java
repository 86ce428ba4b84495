import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import redis.clients.jedis.Jedis;

class Leaderboard {
    private final Jedis jedis;
    private final String sha;

    Leaderboard(Jedis jedis, String lua) {
        this.jedis = jedis;
        this.sha = jedis.scriptLoad(lua);
    }

    /** The lines of the board around a player who has won some points. */
    String add(String player, int points) {
        List<String> args = List.of(player, String.valueOf(points), "1");
        List<?> reply = (List<?>) jedis.evalsha(sha, List.of("board"), args);
        List<?> board = (List<?>) reply.get(1);
        StringBuilder lines = new StringBuilder();
        for (int at = 0; at < board.size(); at += 2) {
            long rank = (long) reply.get(0) + at / 2;
            lines.append("%d. %s %s%n".formatted(rank, board.get(at), board.get(at + 1)));
        }
        return lines.toString();
    }

    public static void main(String[] args) throws Exception {
        String url = System.getenv().getOrDefault("REDIS_URL", "redis://127.0.0.1:6379");
        try (Jedis jedis = new Jedis(url)) {
            Leaderboard board = new Leaderboard(jedis, Files.readString(Path.of("script.lua")));
            board.add("bob", 20);
            board.add("cyd", 50);
            System.out.print(board.add("ada", 30));
            System.out.print(board.add("bob", 50));
        }
    }
}
