import io.lettuce.core.ClientOptions;
import io.lettuce.core.Consumer;
import io.lettuce.core.ExpireArgs;
import io.lettuce.core.HSetExArgs;
import io.lettuce.core.KeyValue;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisNoScriptException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.ScoredValue;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.StreamMessage;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.XReadArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.api.sync.RedisAdvancedClusterCommands;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.resource.ClientResources;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.CacheFrontend;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * What programs do with Lettuce: scripts, pipelines, watched transactions, messages, streams, client-side caching, fields of
 * hashes that expire, and a client of Redis Cluster.
 */
class LettuceTest extends ClientTest {
    private final RedisClient client;
    private final StatefulRedisConnection<String, String> connection;
    private final RedisCommands<String, String> redis;

    private LettuceTest(RedisClient client) {
        this.client = client;
        connection = client.connect();
        redis = connection.sync();
    }

    private void scripts() throws Exception {
        String[] keys = {"seats"};
        // No server knows this one.
        String script = SEATS + " -- " + System.nanoTime();
        String sha = redis.digest(script);
        fails(RedisNoScriptException.class, "NOSCRIPT", () -> redis.evalsha(sha, ScriptOutputType.INTEGER, keys, "2"));
        expect(1L, redis.<Long>eval(script, ScriptOutputType.INTEGER, keys, "2"));
        expect(2L, redis.<Long>evalsha(sha, ScriptOutputType.INTEGER, keys, "2"));
        fails(
                RedisCommandExecutionException.class,
                "FULL at 2",
                () -> redis.evalsha(sha, ScriptOutputType.INTEGER, keys, "2"));
        List<Object> reply = redis.eval("return {KEYS[1], ARGV[1], 7.9, {false}}", ScriptOutputType.MULTI, keys, "v");
        expect(List.of("seats", "v", 7L, Arrays.asList((Object) null)), reply);
        expect("fine", redis.<String>eval("return redis.status_reply('fine')", ScriptOutputType.STATUS));
        expect(true, redis.<Boolean>eval("return 1", ScriptOutputType.BOOLEAN));
        expect("2", redis.<String>evalReadOnly("return redis.call('GET', KEYS[1])", ScriptOutputType.VALUE, keys));
        expect(List.of(true, false), redis.scriptExists(sha, "0".repeat(40)));
        redis.functionLoad(
                "#!lua name=lettuce\nredis.register_function('lettuce', function(keys, args) return args[1] * 2 end)", true);
        expect(42L, redis.<Long>fcall("lettuce", ScriptOutputType.INTEGER, new String[0], "21"));
    }

    private void pipelines() throws Exception {
        connection.setAutoFlushCommands(false);
        List<RedisFuture<Long>> replies = new ArrayList<>();
        for (int index = 0; index < 1000; index++) replies.add(connection.async().incr("many"));
        connection.flushCommands();
        connection.setAutoFlushCommands(true);
        for (int index = 0; index < 1000; index++) expect(index + 1L, replies.get(index).get(60, TimeUnit.SECONDS));
    }

    private void transactions() {
        redis.multi();
        redis.set("t", "1");
        redis.incr("t");
        redis.lpush("t", "x");
        TransactionResult result = redis.exec();
        expect(List.of("OK", 2L), List.of(result.get(0), result.get(1)));
        expect(true, result.get(2) instanceof RedisCommandExecutionException error && error.getMessage().startsWith("WRONGTYPE"));
        redis.watch("t");
        try (StatefulRedisConnection<String, String> other = client.connect()) {
            other.sync().set("t", "9");
        }
        redis.multi();
        redis.incr("t");
        expect(true, redis.exec().wasDiscarded());
        expect("9", redis.get("t"));
    }

    private void values() {
        expect(2L, redis.hset("h", Map.of("one", "1", "two", "zwei")));
        expect(Map.of("one", "1", "two", "zwei"), redis.hgetall("h"));
        redis.zadd("z", 1.0, "a", 2.5, "b", Double.POSITIVE_INFINITY, "c");
        expect(
                List.of(
                        ScoredValue.just(1.0, "a"),
                        ScoredValue.just(2.5, "b"),
                        ScoredValue.just(Double.POSITIVE_INFINITY, "c")),
                redis.zrangeWithScores("z", 0, -1));
        redis.sadd("s", "x", "y");
        expect(Set.of("x", "y"), redis.smembers("s"));
        expect("OK", redis.set("e", "x", SetArgs.Builder.nx().ex(100)));
        expect(true, redis.set("e", "x", SetArgs.Builder.nx()) == null && redis.ttl("e") > 90);
        Map<String, String> pairs = new LinkedHashMap<>();
        for (int index = 0; index < 100; index++) pairs.put("scan:" + index, "" + index);
        redis.mset(pairs);
        Set<String> found = new HashSet<>();
        ScanIterator.scan(redis, ScanArgs.Builder.matches("scan:*").limit(10)).forEachRemaining(found::add);
        expect(pairs.keySet(), found);
        expect(List.of(KeyValue.just("scan:1", "1"), KeyValue.empty("none")), redis.mget("scan:1", "none"));
    }

    private void messages(String channel) throws Exception {
        BlockingQueue<String> heard = new LinkedBlockingQueue<>();
        try (StatefulRedisPubSubConnection<String, String> listener = client.connectPubSub()) {
            listener.addListener(
                    new RedisPubSubAdapter<>() {
                        @Override
                        public void message(String name, String message) {
                            heard.add(name + "=" + message);
                        }

                        @Override
                        public void message(String pattern, String name, String message) {
                            heard.add(pattern + " " + name + "=" + message);
                        }
                    });
            listener.sync().subscribe(channel);
            listener.sync().psubscribe(channel + "*");
            expect(2L, redis.publish(channel, "ä"));
            expect(channel + "=ä", heard.poll(60, TimeUnit.SECONDS));
            expect(channel + "* " + channel + "=ä", heard.poll(60, TimeUnit.SECONDS));
            listener.sync().unsubscribe(channel);
            listener.sync().punsubscribe(channel + "*");
            expect("PONG", listener.sync().ping());
        }
    }

    @SuppressWarnings("unchecked")
    private void streams() throws Exception {
        List<String> ids = new ArrayList<>();
        for (int index = 0; index < 5; index++) ids.add(redis.xadd("stream", Map.of("n", "" + index)));
        redis.xgroupCreate(XReadArgs.StreamOffset.from("stream", "0"), "workers");
        Consumer<String> one = Consumer.from("workers", "one");
        List<StreamMessage<String, String>> read =
                redis.xreadgroup(one, XReadArgs.Builder.count(3), XReadArgs.StreamOffset.lastConsumed("stream"));
        expect(ids.subList(0, 3), read.stream().map(StreamMessage::getId).toList());
        expect(Map.of("n", "0"), read.get(0).getBody());
        expect(1L, redis.xack("stream", "workers", ids.get(0)));
        expect(2L, redis.xpending("stream", "workers").getCount());
        try (StatefulRedisConnection<String, String> other = client.connect()) {
            XReadArgs patient = XReadArgs.Builder.block(Duration.ofSeconds(50));
            RedisFuture<List<StreamMessage<String, String>>> next =
                    other.async().xread(patient, XReadArgs.StreamOffset.from("stream", ids.get(4)));
            RedisFuture<KeyValue<String, String>> popped = other.async().blpop(50.0, "none", "queue");
            String last = redis.xadd("stream", Map.of("n", "5"));
            redis.rpush("queue", "job");
            expect(last, next.get(60, TimeUnit.SECONDS).get(0).getId());
            expect(KeyValue.just("queue", "job"), popped.get(60, TimeUnit.SECONDS));
        }
    }

    /** Fields of hashes that expire, which Redis has since 7.4 and 8.0. */
    private void fields() throws Exception {
        redis.hset("fields", Map.of("stays", "1", "goes", "2"));
        expect(List.of(1L, -2L), redis.hexpire("fields", 100, "stays", "none"));
        expect(List.of(0L), redis.hexpire("fields", 50, ExpireArgs.Builder.gt(), "stays"));
        expect(true, redis.httl("fields", "stays").get(0) > 90);
        expect(List.of(1L, -1L), redis.hpersist("fields", "stays", "goes"));
        expect(1L, redis.hsetex("fields", HSetExArgs.Builder.px(Duration.ofMillis(1)), Map.of("brief", "3")));
        until("a field expires", () -> !redis.hexists("fields", "brief"));
        expect(List.of(KeyValue.just("goes", "2")), redis.hgetdel("fields", "goes"));
        expect(Map.of("stays", "1"), redis.hgetall("fields"));
    }

    private void caching() throws Exception {
        Map<String, String> copies = new ConcurrentHashMap<>();
        redis.set("cached", "old");
        // The client logs an exception, and keeps its copies, when FLUSHDB of another program lets it drop all of them.
        Logger.getLogger("io.lettuce.core.protocol").setLevel(Level.SEVERE);
        try (StatefulRedisConnection<String, String> reader = client.connect()) {
            reader.addListener(
                    message -> {
                        if (message.getType().equals("invalidate") && message.getContent().get(1) == null) copies.clear();
                    });
            CacheFrontend<String, String> cache =
                    ClientSideCaching.enable(CacheAccessor.forMap(copies), reader, TrackingArgs.Builder.enabled());
            until("a copy", () -> cache.get("cached").equals("old") && copies.containsKey("cached"));
            redis.eval("redis.call('SET', KEYS[1], 'new')", ScriptOutputType.STATUS, "cached");
            until("the new value", () -> cache.get("cached").equals("new"));
            redis.set("cached", "brief", SetArgs.Builder.px(100));
            until("the copy has expired", () -> cache.get("cached") == null);
        }
    }

    /** Commands that this client divides by slots, a script and messages. */
    private static void cluster(ClientResources resources, RedisURI uri) throws Exception {
        RedisClusterClient client = RedisClusterClient.create(resources, uri);
        try (StatefulRedisClusterConnection<String, String> connection = client.connect()) {
            expect(1, client.getPartitions().size());
            expect(16384, client.getPartitions().getPartition(0).getSlots().size());
            RedisAdvancedClusterCommands<String, String> redis = connection.sync();
            Map<String, String> pairs = new LinkedHashMap<>();
            for (int index = 0; index < 20; index++) pairs.put("lettuce:" + index, "" + index);
            expect("OK", redis.mset(pairs));
            List<KeyValue<String, String>> read = redis.mget(pairs.keySet().toArray(new String[0]));
            expect(List.copyOf(pairs.values()), read.stream().map(KeyValue::getValue).toList());
            String[] keys = {"{lettuce}:a"};
            expect(1L, redis.<Long>eval(SEATS, ScriptOutputType.INTEGER, keys, "2"));
            expect(2L, redis.<Long>evalsha(redis.digest(SEATS), ScriptOutputType.INTEGER, keys, "2"));
            expect(21L, redis.unlink(pairs.keySet().toArray(new String[0])) + redis.del(keys));
        } finally {
            client.shutdown(Duration.ZERO, Duration.ofSeconds(5));
        }
    }

    static void run(String server, int db, String cluster) throws Exception {
        ClientResources resources = ClientResources.builder().ioThreadPoolSize(2).computationThreadPoolSize(2).build();
        RedisURI uri = RedisURI.create("redis://" + server + "/" + db);
        uri.setTimeout(Duration.ofSeconds(60));
        RedisClient client = RedisClient.create(resources, uri);
        for (ProtocolVersion version : List.of(ProtocolVersion.RESP2, ProtocolVersion.RESP3)) {
            boolean newer = version == ProtocolVersion.RESP3;
            // What is negotiated by default is RESP3.
            if (!newer) client.setOptions(ClientOptions.builder().protocolVersion(version).build());
            else client.setOptions(ClientOptions.create());
            LettuceTest test = new LettuceTest(client);
            expect(true, test.redis.clientInfo().contains("resp=" + (newer ? 3 : 2)));
            test.redis.flushdb();
            test.scripts();
            test.pipelines();
            test.transactions();
            test.values();
            test.messages("lettuce:" + db + ":" + version);
            test.streams();
            test.fields();
            if (newer) test.caching();
            test.redis.flushdb();
            test.connection.close();
        }
        client.shutdown(Duration.ZERO, Duration.ofSeconds(5));
        if (!cluster.isEmpty()) {
            uri = RedisURI.create("redis://" + cluster);
            uri.setTimeout(Duration.ofSeconds(60));
            cluster(resources, uri);
        }
        System.out.println("Lettuce is content");
    }
}
