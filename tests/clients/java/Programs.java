/**
 * Runs the programs for Jedis and Lettuce in one process, since a start of Java takes longer than either of them.
 *
 * Usage: java Programs HOST:PORT DB. CLUSTER in the environment is the address of a server for clients of Redis Cluster.
 */
class Programs {
    public static void main(String[] args) throws Exception {
        String cluster = System.getenv().getOrDefault("CLUSTER", "");
        int db = Integer.parseInt(args[1]);
        JedisTest.run(args[0], db, cluster);
        LettuceTest.run(args[0], db, cluster);
        // Threads of a client that has been closed may live for a moment.
        System.exit(0);
    }
}
