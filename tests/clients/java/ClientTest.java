import java.util.concurrent.Callable;

/** What the programs for all clients share. */
abstract class ClientTest {
    /** A counter that never passes its limit. */
    static final String SEATS =
            """
            local taken = tonumber(redis.call('GET', KEYS[1]) or 0)
            if taken >= tonumber(ARGV[1]) then return redis.error_reply('FULL at ' .. taken) end
            return redis.call('INCR', KEYS[1])""";

    static void expect(Object wanted, Object seen) {
        if (!wanted.equals(seen)) throw new AssertionError("not " + wanted + " but " + seen);
    }

    /** Expects an exception of a class, with a text. */
    static void fails(Class<? extends Exception> kind, String text, Callable<?> call) throws Exception {
        try {
            call.call();
        } catch (Exception error) {
            if (kind.isInstance(error) && error.getMessage().contains(text)) return;
            throw error;
        }
        throw new AssertionError("no error: " + text);
    }

    /** Waits until a condition holds. */
    static void until(String what, Callable<Boolean> holds) throws Exception {
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (!holds.call()) {
            if (System.nanoTime() > deadline) throw new AssertionError(what);
            Thread.sleep(5);
        }
    }
}
