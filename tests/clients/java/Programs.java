import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.params.XReadGroupParams;
import redis.clients.jedis.resps.StreamEntry;
import redis.clients.jedis.resps.Tuple;

/**
 * What programs do with Jedis: scripts, pipelines, watched transactions, messages, streams, blocking pops.
 *
 * Usage: java Programs.java HOST:PORT DB
 */
class Programs {
    /** A counter that never passes its limit. */
    private static final String SEATS =
            """
            local taken = tonumber(redis.call('GET', KEYS[1]) or 0)
            if taken >= tonumber(ARGV[1]) then return redis.error_reply('FULL at ' .. taken) end
            return redis.call('INCR', KEYS[1])""";

    private final HostAndPort address;
    private final DefaultJedisClientConfig config;

    private Programs(HostAndPort address, int db, RedisProtocol protocol) {
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

    private static void expect(Object wanted, Object seen) {
        if (!wanted.equals(seen)) throw new AssertionError("not " + wanted + " but " + seen);
    }

    private static void fails(String text, Runnable call) {
        try {
            call.run();
        } catch (JedisDataException error) {
            if (error.getMessage().contains(text)) return;
            throw error;
        }
        throw new AssertionError("no error: " + text);
    }

    private static void scripts(Jedis jedis) {
        String sha = jedis.scriptLoad(SEATS);
        for (long wanted = 1; wanted <= 2; wanted++) {
            expect(wanted, jedis.evalsha(sha, List.of("seats"), List.of("2")));
        }
        fails("FULL at 2", () -> jedis.eval(SEATS, List.of("seats"), List.of("2")));
        expect(List.of("k", "v", 7L), jedis.eval("return {KEYS[1], ARGV[1], 7.9}", List.of("k"), List.of("v")));
        fails("NOSCRIPT", () -> jedis.evalsha("0".repeat(40)));
        expect(true, jedis.scriptExists(sha));
    }

    private static void pipelines(Jedis jedis) {
        Pipeline pipeline = jedis.pipelined();
        List<Response<Long>> replies = new ArrayList<>();
        for (int index = 0; index < 1000; index++) replies.add(pipeline.incr("many"));
        pipeline.sync();
        for (int index = 0; index < 1000; index++) expect(index + 1L, replies.get(index).get());
    }

    private void transactions(Jedis jedis) {
        Transaction transaction = jedis.multi();
        transaction.set("t", "1");
        Response<Long> raised = transaction.incr("t");
        Response<Long> wrong = transaction.lpush("t", "x");
        expect(3, transaction.exec().size());
        expect(2L, raised.get());
        fails("WRONGTYPE", wrong::get);
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

    public static void main(String[] args) throws InterruptedException {
        for (RedisProtocol protocol : RedisProtocol.values()) {
            Programs programs = new Programs(HostAndPort.from(args[0]), Integer.parseInt(args[1]), protocol);
            try (Jedis jedis = programs.connect()) {
                jedis.flushDB();
                scripts(jedis);
                pipelines(jedis);
                programs.transactions(jedis);
                values(jedis);
                programs.messages(jedis);
                programs.streams(jedis);
                jedis.flushDB();
            }
        }
        System.out.println("Jedis is content");
    }
}
