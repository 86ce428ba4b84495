import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.ClusterPipeline;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.csc.DefaultCache;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.HSetExParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.params.XReadGroupParams;
import redis.clients.jedis.resps.StreamEntry;
import redis.clients.jedis.resps.Tuple;

/**
 * What programs do with Jedis: scripts, pipelines, watched transactions, messages, streams, blocking pops,
 * client-side caching, fields of hashes that expire, and a client of Redis Cluster.
 */
class JedisTest extends ClientTest {
    private final HostAndPort address;
    private final DefaultJedisClientConfig config;

    private JedisTest(HostAndPort address, int db, RedisProtocol protocol) {
        this.address = address;
        this.config =
                DefaultJedisClientConfig.builder()
                        .database(db)
                        .protocol(protocol)
                        .timeoutMillis(60_000)
                        .blockingSocketTimeoutMillis(60_000)
                        .build();
    }

    private Jedis connect() {
        return new Jedis(address, config);
    }

    private static void scripts(Jedis jedis) throws Exception {
        String sha = jedis.scriptLoad(SEATS);
        for (long wanted = 1; wanted <= 2; wanted++) {
            expect(wanted, jedis.evalsha(sha, List.of("seats"), List.of("2")));
        }
        fails(JedisDataException.class, "FULL at 2", () -> jedis.eval(SEATS, List.of("seats"), List.of("2")));
        expect(List.of("k", "v", 7L), jedis.eval("return {KEYS[1], ARGV[1], 7.9}", List.of("k"), List.of("v")));
        fails(JedisDataException.class, "NOSCRIPT", () -> jedis.evalsha("0".repeat(40)));
        expect(true, jedis.scriptExists(sha));
    }

    private static void pipelines(Jedis jedis) {
        Pipeline pipeline = jedis.pipelined();
        List<Response<Long>> replies = new ArrayList<>();
        for (int index = 0; index < 1000; index++) replies.add(pipeline.incr("many"));
        pipeline.sync();
        for (int index = 0; index < 1000; index++) expect(index + 1L, replies.get(index).get());
    }

    private void transactions(Jedis jedis) throws Exception {
        Transaction transaction = jedis.multi();
        transaction.set("t", "1");
        Response<Long> raised = transaction.incr("t");
        Response<Long> wrong = transaction.lpush("t", "x");
        expect(3, transaction.exec().size());
        expect(2L, raised.get());
        fails(JedisDataException.class, "WRONGTYPE", wrong::get);
        jedis.watch("t");
        try (Jedis other = connect()) {
            other.set("t", "9");
        }
        transaction = jedis.multi();
        transaction.incr("t");
        if (transaction.exec() != null) throw new AssertionError("a watched key has changed");
        expect("9", jedis.get("t"));
    }

    private static void values(Jedis jedis) {
        expect(2L, jedis.hset("h", Map.of("one", "1", "two", "zwei")));
        expect(Map.of("one", "1", "two", "zwei"), jedis.hgetAll("h"));
        expect(2L, jedis.zadd("z", Map.of("a", 1.0, "b", 2.5)));
        expect(List.of(new Tuple("a", 1.0), new Tuple("b", 2.5)), jedis.zrangeWithScores("z", 0, -1));
        expect(2.5, jedis.zscore("z", "b"));
        jedis.sadd("s", "x", "y");
        expect(Set.of("x", "y"), jedis.smembers("s"));
        expect("OK", jedis.set("e", "x", SetParams.setParams().nx().ex(100)));
        expect(true, jedis.ttl("e") > 90);
        expect(true, jedis.set("e", "x", SetParams.setParams().nx()) == null);
        byte[] binary = {0, -1, 13, 10};
        jedis.set("binary".getBytes(), binary);
        expect(binary.length, jedis.get("binary".getBytes()).length);
        expect(List.of(true, false), jedis.smismember("s", "x", "none"));
    }

    private void messages(Jedis jedis) throws InterruptedException {
        CountDownLatch subscribed = new CountDownLatch(1);
        List<String> heard = new ArrayList<>();
        String channel = "jedis:" + config.getDatabase();
        JedisPubSub listener =
                new JedisPubSub() {
                    @Override
                    public void onSubscribe(String name, int count) {
                        subscribed.countDown();
                    }

                    @Override
                    public void onMessage(String name, String message) {
                        heard.add(message);
                        if (heard.size() == 3) unsubscribe();
                    }
                };
        Thread thread =
                new Thread(
                        () -> {
                            try (Jedis reader = connect()) {
                                reader.subscribe(listener, channel);
                                expect("PONG", reader.ping());
                            }
                        });
        thread.start();
        expect(true, subscribed.await(60, TimeUnit.SECONDS));
        for (String message : List.of("a", "b", "c")) expect(1L, jedis.publish(channel, message));
        thread.join();
        expect(List.of("a", "b", "c"), heard);
    }

    private void streams(Jedis jedis) throws InterruptedException {
        List<StreamEntryID> ids = new ArrayList<>();
        for (int index = 0; index < 5; index++) {
            ids.add(jedis.xadd("stream", StreamEntryID.NEW_ENTRY, Map.of("n", "" + index)));
        }
        jedis.xgroupCreate("stream", "workers", new StreamEntryID(), false);
        Map<String, StreamEntryID> next = Map.of("stream", StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY);
        List<Map.Entry<String, List<StreamEntry>>> read =
                jedis.xreadGroup("workers", "one", XReadGroupParams.xReadGroupParams().count(3), next);
        expect(ids.subList(0, 3), read.get(0).getValue().stream().map(StreamEntry::getID).toList());
        expect(1L, jedis.xack("stream", "workers", ids.get(0)));
        expect(2L, jedis.xpending("stream", "workers").getTotal());

        Thread thread =
                new Thread(
                        () -> {
                            try (Jedis other = connect()) {
                                other.rpush("queue", "job");
                            }
                        });
        thread.start();
        expect(List.of("queue", "job"), jedis.blpop(60, "queue"));
        thread.join();
    }

    /** Fields of hashes that expire, which Redis has since 7.4 and 8.0. */
    private static void fields(Jedis jedis) throws Exception {
        jedis.hset("fields", Map.of("stays", "1", "goes", "2"));
        expect(List.of(1L, -2L), jedis.hexpire("fields", 100, "stays", "none"));
        expect(true, jedis.httl("fields", "stays").get(0) > 90);
        expect(List.of(1L, -1L), jedis.hpersist("fields", "stays", "goes"));
        expect(1L, jedis.hsetex("fields", HSetExParams.hSetExParams().px(1), "brief", "3"));
        until("a field expires", () -> !jedis.hexists("fields", "brief"));
        expect(List.of("2"), jedis.hgetdel("fields", "goes"));
        expect(Map.of("stays", "1"), jedis.hgetAll("fields"));
    }

    /** The client refuses caching for Redis before 7.4 unless a cache is in this mode. */
    static class CompatibleCache extends DefaultCache {
        CompatibleCache() {
            super(100);
        }

        @Override
        public boolean compatibilityMode() {
            return true;
        }
    }

    private void caching(Jedis writer) throws Exception {
        try (RedisClient client =
                RedisClient.builder().hostAndPort(address).clientConfig(config).cache(new CompatibleCache()).build()) {
            writer.set("cached", "old");
            // FLUSHDB of another program empties the caches of all clients.
            until("a hit", () -> client.get("cached").equals("old") && client.getCache().getStats().getHitCount() > 0);
            writer.eval("redis.call('SET', KEYS[1], 'new')", List.of("cached"), List.of());
            until("the new value", () -> client.get("cached").equals("new"));
        }
    }

    /** Keys of many slots, a script, a pipeline and messages through a client of Redis Cluster. */
    private static void cluster(HostAndPort address, DefaultJedisClientConfig config) throws Exception {
        try (RedisClusterClient cluster =
                RedisClusterClient.builder().nodes(Set.of(address)).clientConfig(config).build()) {
            expect(1, cluster.getClusterNodes().size());
            expect("OK", cluster.mset("{jedis}:a", "1", "{jedis}:b", "2"));
            expect(List.of("1", "2"), cluster.mget("{jedis}:a", "{jedis}:b"));
            try (ClusterPipeline pipeline = cluster.pipelined()) {
                for (int index = 0; index < 100; index++) pipeline.set("jedis:" + index, "" + index);
                Response<String> last = pipeline.get("jedis:99");
                pipeline.sync();
                expect("99", last.get());
            }
            String sum = "return redis.call('GET', KEYS[1]) + redis.call('GET', KEYS[2])";
            expect(3L, cluster.eval(sum, List.of("{jedis}:a", "{jedis}:b"), List.of()));
            fails(JedisDataException.class, "FULL at 1", () -> cluster.eval(SEATS, List.of("{jedis}:a"), List.of("1")));
            for (int index = 0; index < 100; index++) expect(1L, cluster.del("jedis:" + index));
        }
    }

    static void run(String server, int db, String cluster) throws Exception {
        for (RedisProtocol protocol : List.of(RedisProtocol.RESP2, RedisProtocol.RESP3)) {
            JedisTest test = new JedisTest(HostAndPort.from(server), db, protocol);
            try (Jedis jedis = test.connect()) {
                jedis.flushDB();
                scripts(jedis);
                pipelines(jedis);
                test.transactions(jedis);
                values(jedis);
                test.messages(jedis);
                test.streams(jedis);
                fields(jedis);
                if (protocol == RedisProtocol.RESP3) test.caching(jedis);
                jedis.flushDB();
            }
        }
        if (!cluster.isEmpty()) {
            cluster(HostAndPort.from(cluster), new JedisTest(HostAndPort.from(cluster), 0, RedisProtocol.RESP3).config);
        }
        System.out.println("Jedis is content");
    }
}
