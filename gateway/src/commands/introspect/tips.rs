//! COMMAND's tips: hints of Redis for clients of a cluster, and for tools that compare replies, about each command.

/// A tip, and the commands that have it.
const TIPS: &[(&str, &str)] = &[
    (
        "nondeterministic_output",
        "client|info client|list cluster|bumpepoch cluster|count-failure-reports cluster|getkeysinslot \
         cluster|info cluster|links cluster|nodes cluster|replicas cluster|shards cluster|slaves \
         cluster|slots cluster|slot-stats dump function|stats hpttl hrandfield hscan httl info lastsave latency|doctor latency|graph \
         latency|histogram latency|history latency|latest memory|doctor memory|malloc-stats memory|stats migrate \
         object|encoding object|freq object|idletime object|refcount pttl randomkey scan slowlog|get \
         slowlog|len spop srandmember sscan time ttl xadd xautoclaim xclaim xinfo|consumers xpending xtrim \
         zrandmember zscan",
    ),
    (
        "nondeterministic_output_order",
        "command command|docs command|info command|list function|list hgetall hkeys hvals keys module|list \
         sdiff sinter smembers sunion",
    ),
    (
        "request_policy:all_nodes",
        "config|set latency|doctor latency|graph latency|histogram latency|history latency|latest \
         latency|reset script|flush script|load slowlog|get slowlog|len slowlog|reset",
    ),
    (
        "request_policy:all_shards",
        "cluster|slot-stats dbsize flushall flushdb function|delete function|flush function|kill function|load function|restore \
         function|stats info keys memory|doctor memory|malloc-stats memory|purge memory|stats ping randomkey \
         script|exists script|kill wait waitaof",
    ),
    ("request_policy:multi_shard", "del exists mget mset msetnx touch unlink"),
    ("request_policy:special", "scan"),
    ("response_policy:agg_logical_and", "script|exists"),
    ("response_policy:agg_min", "msetnx wait waitaof"),
    ("response_policy:agg_sum", "dbsize del exists slowlog|len touch unlink"),
    (
        "response_policy:all_succeeded",
        "config|set flushall flushdb function|delete function|flush function|load function|restore \
         latency|reset memory|purge mset ping script|flush script|load slowlog|reset",
    ),
    ("response_policy:one_succeeded", "function|kill script|kill"),
    (
        "response_policy:special",
        "function|stats info latency|doctor latency|graph latency|histogram latency|history latency|latest \
         memory|doctor memory|malloc-stats memory|stats",
    ),
];

/// The tips of a command, by its full name.
pub fn tips(name: &str) -> impl Iterator<Item = &'static str> {
    let has = move |(_, commands): &&(&str, &str)| commands.split(' ').any(|command| command == name);
    TIPS.iter().filter(has).map(|(tip, _)| *tip)
}
