//! The server is killed at any moment and started again on the same folder, again and again. What was acknowledged
//! must be there; nothing may be there in part.
//!
//! A second server that was never killed is given the same steps, as far as the first one has them, and has to hold
//! the same. `MOONSHARD_CRASH_SEED` starts elsewhere, `MOONSHARD_CRASH_SECONDS` goes on for longer than the bounded
//! run of `make test`. A seed gives the same steps, but not the same moments.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tests::client::encode;
use tests::contents::{self, Contents};
use tests::generate::Chance;
use tests::temp_dir::TempDir;
use tests::workload::{self, PLAYERS};
use tests::{Client, TIMEOUT, TestServer, Value, permits, process, wait_until};

/// Lives of a server in a bounded run: with sync they are shorter.
const LIVES: [u64; 2] = [6, 12];
const TRANSFERRERS: usize = 2;
/// With periodic durability, what was told to be done longer ago than this must be there, unless the machine stalls. A
/// second is promised; a machine with four others at work on each core was seen to need two.
const WINDOW: Duration = Duration::from_secs(4);

/// Between the steps of a player. Some player always waits for the server, which leaves time to other tests.
const PAUSE: Duration = Duration::from_millis(24);

/// Those that players and tellers use.
const DATABASES: [usize; 3] = [0, workload::OWN_DATABASES[0], workload::OWN_DATABASES[1]];

/// Numbers of steps, with when they were told to be done.
type Acknowledged = Vec<(u64, Instant)>;

/// How long the disk has at most taken to keep a few bytes.
fn slowest_write(ended: &AtomicBool) -> Duration {
    let dir = TempDir::made("slowest-write");
    let mut slowest = Duration::ZERO;
    while !ended.load(Ordering::Relaxed) {
        let began = Instant::now();
        let file = std::fs::File::create(dir.path().join("bytes")).expect("a file");
        std::io::Write::write_all(&mut &file, b"bytes")
            .and_then(|()| file.sync_all())
            .expect("room for bytes");
        slowest = slowest.max(began.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    slowest
}

/// What a player or teller did in one life.
#[derive(Default)]
struct Ops {
    acknowledged: Acknowledged,
    /// The last step that was begun.
    begun: u64,
}

impl Ops {
    /// How long before a kill at `end` the first was told of what is gone, if only `kept` is there.
    fn lost(&self, kept: u64, end: Instant) -> Option<Duration> {
        let first = self.acknowledged.iter().find(|(number, _)| *number > kept)?;
        Some(end.saturating_duration_since(first.1))
    }
}

/// What is known of one life of the server.
struct Life {
    players: Vec<Ops>,
    transferrers: Vec<Ops>,
    end: Instant,
    /// The longest that somebody was away who wanted to sleep for a millisecond.
    stall: Duration,
    /// The newest change that was told to be on disk.
    durable: u64,
}

/// A number in what INFO says.
fn field(info: &str, name: &str) -> u64 {
    let mut lines = info.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    lines.next().expect("a field").parse().expect("a number")
}

/// Sends requests and reads the last reply; `None` when the server is gone.
fn ask(client: &mut Client, requests: &[Vec<Vec<u8>>]) -> Option<Value> {
    let bytes: Vec<u8> = requests.iter().flat_map(encode).collect();
    client.send_raw(&bytes).ok()?;
    let mut last = None;
    for _ in requests {
        last = client.try_read().ok()?;
        last.as_ref()?;
    }
    last
}

/// A player's steps, from `first` on, until the server is gone. The number of the step is told with each.
fn play(mut client: Client, seed: u64, player: usize, first: u64) -> Ops {
    let mut ops = Ops { begun: first - 1, ..Ops::default() };
    let select = |db: usize| vec![b"SELECT".to_vec(), db.to_string().into_bytes()];
    let own = if player == 0 { workload::OWN_DATABASES[0] } else { 0 };
    for number in first.. {
        ops.begun = number;
        let mut requests = vec![select(own)];
        requests.extend(workload::step(seed, player, number));
        requests.push(select(0));
        let done = ["SET", &workload::done_key(player), &number.to_string()];
        requests.push(done.iter().map(|word| word.as_bytes().to_vec()).collect());
        match ask(&mut client, &requests) {
            Some(Value::Status(_)) => {
                ops.acknowledged.push((number, Instant::now()));
                std::thread::sleep(PAUSE);
            }
            Some(other) => panic!("step {number} of player {player}: {other:?}"),
            None => return ops,
        }
    }
    unreachable!("the server never goes")
}

/// Transfers until the server is gone. What is told are the shared numbers.
fn check_transfers(mut client: Client, mut chance: Chance, transferrer: usize) -> Ops {
    let mut ops = Ops::default();
    loop {
        match ask(&mut client, &workload::transfer(&mut chance, transferrer)) {
            Some(Value::Integer(number)) => {
                ops.acknowledged.push((number.cast_unsigned(), Instant::now()));
                std::thread::sleep(PAUSE);
            }
            Some(Value::Array(_)) => {}
            Some(other) => panic!("a transfer: {other:?}"),
            None => return ops,
        }
    }
}

/// Takes what has to do with the shared accounts out of the contents, and checks it: whoever has a number has all
/// smaller ones, and nothing was ever half transferred.
fn check_shared(contents: &mut Contents) -> Result<u64, String> {
    let shared: Vec<_> = contents
        .extract_if(.., |(_, key), _| key.starts_with(workload::SHARED.as_bytes()))
        .map(|((_, key), held)| (String::from_utf8_lossy(&key).into_owned(), held))
        .collect();
    let number = |text: &str| text.trim_matches('"').parse::<i64>().expect("a number");
    let mut sum = 0;
    let (mut newest, mut numbers) = (0, Vec::new());
    for (key, held) in &shared {
        if key.contains("account") {
            sum += number(&held[0]);
        } else if key.contains("numbers:") {
            let own: Vec<i64> = held[..held.len() - 1].iter().map(|text| number(text)).collect();
            if !own.is_sorted() {
                return Err(format!("{key} is out of order"));
            }
            numbers.extend(own);
        } else {
            newest = number(&held[0]);
        }
    }
    numbers.sort_unstable();
    if sum != 0 {
        return Err(format!("the sum of all accounts is {sum}"));
    }
    if !numbers.iter().copied().eq(1..=newest) {
        return Err(format!("the numbers to {newest} are not all there once: there are {}", numbers.len()));
    }
    Ok(newest.cast_unsigned())
}

/// The server that is never killed, and what it was given.
struct Model {
    server: TestServer,
    seed: u64,
    done: [u64; PLAYERS],
}

impl Model {
    fn new(seed: u64) -> Model {
        let flags = [&workload::FLAGS[..], &["--shards", "3"]].concat();
        Model { server: TestServer::start(&flags), seed, done: [0; PLAYERS] }
    }

    fn advance(&mut self, player: usize, to: u64) {
        let mut client = self.server.client();
        if player == 0 {
            client.call(["SELECT", &workload::OWN_DATABASES[0].to_string()]);
        }
        let steps = (self.done[player] + 1..=to).collect::<Vec<_>>();
        for some in steps.chunks(200) {
            let requests: Vec<_> =
                some.iter().flat_map(|number| workload::step(self.seed, player, *number)).collect();
            client.pipeline(&requests);
        }
        self.done[player] = to;
    }

    fn contents(&self) -> Contents {
        settled(&self.server)
    }
}

/// What a server holds, once all that lives shortly has gone. Whether it has not come back is seen that way.
fn settled(server: &TestServer) -> Contents {
    let mut client = server.client();
    let mut contents = Contents::new();
    wait_until("what lives shortly has gone", || {
        contents = contents::read(&mut client);
        let is_short = |key: &[u8]| key.windows(6).any(|part| part == b":short");
        let all_gone = DATABASES.into_iter().all(|db| {
            let seen = contents.range((db, Vec::new())..(db + 1, Vec::new())).count();
            client.call(["SELECT", &db.to_string()]);
            // What has expired counts until it is removed.
            client.run("DBSIZE") == Value::Integer(seen as i64)
        });
        all_gone && !contents.keys().any(|(_, key)| is_short(key))
    });
    contents
}

/// How many bytes each collection takes.
fn collection_bytes(server: &TestServer, contents: &Contents) -> Vec<(Vec<u8>, Value)> {
    let mut client = server.client();
    let is_collection = |held: &Vec<String>| !held.last().is_some_and(|last| last.starts_with("+string"));
    let mut found = Vec::new();
    for db in DATABASES {
        client.call(["SELECT", &db.to_string()]);
        let keys =
            contents.range((db, Vec::new())..(db + 1, Vec::new())).filter(|(_, held)| is_collection(held));
        for ((_, key), _) in keys {
            found.push((key.clone(), client.call([&b"MEMORY"[..], b"USAGE", key])));
        }
    }
    found
}

/// One folder's story.
struct Story {
    dir: TempDir,
    sync: bool,
    seed: u64,
    chance: Chance,
    model: Model,
    /// The highest shared number that was there.
    number: u64,
    /// The next life is to end by itself.
    doomed: bool,
    /// How often the story had these.
    cut_while_writing: u64,
    cut_while_starting: u64,
    cut_by_itself: u64,
    folded: u64,
    /// The longest time before a kill that was lost.
    lost: Duration,
}

impl Story {
    fn start(&mut self) -> TestServer {
        self.start_ending("").expect("it starts")
    }

    /// A server that may end itself at a certain place of a round.
    fn start_doomed(&mut self) -> TestServer {
        let fail_point = self.chance.pick(&["folded", "collected", "applied", "flushed"]);
        // Not before it is ready and everybody is connected, which takes some idle rounds at most. Shorter rounds come there
        // sooner.
        let turn = 30 + self.chance.below(30);
        let started = self.start_ending(&format!("round-ms=100,{fail_point}@{turn}=abort"));
        self.doomed = started.is_ok();
        started.unwrap_or_else(|_| {
            self.cut_while_starting += 1;
            self.start()
        })
    }

    fn start_ending(&mut self, doom: &str) -> Result<TestServer, String> {
        // Often everything is in the journal, often it is so short that keys are folded all the time, in small parts.
        let bounds = self.chance.pick(&["", "journal-bytes=50000,fold-bytes=5000"]);
        let [shards, threads] = [[1, 2, 5, 16], [1, 2, 2, 4]].map(|some| self.chance.pick(&some).to_string());
        let durability = if self.sync { "sync" } else { "periodic" };
        let own = ["--data-dir", self.dir.text(), "--durability", durability];
        let more = ["--shards", &shards, "--threads", &threads];
        let fail_points = format!("{bounds},{doom}");
        let flags = [&own[..], &more, &workload::FLAGS].concat();
        TestServer::try_start(&flags, &fail_points)
    }

    /// Players and tellers at work until the server's end; returns what they were told.
    fn live(&mut self, mut server: TestServer) -> Life {
        let longest = if self.sync { 1200 } else { 6500 };
        let life = Duration::from_millis(self.chance.below(longest) as u64);
        // How many rounds there are in a time is the machine's matter.
        let is_left_alone = std::mem::take(&mut self.doomed) && cfg!(debug_assertions);
        let life = if is_left_alone { TIMEOUT } else { life };
        let (seed, done) = (self.seed, self.model.done);
        let mut chances: Vec<Chance> =
            (0..=TRANSFERRERS).map(|_| Chance::new(self.chance.below(usize::MAX) as u64)).collect();
        let mut saver = chances.pop().expect("one more than tellers");
        let ended = AtomicBool::new(false);
        let (checkpoints, durable) = (Mutex::new(Vec::new()), AtomicU64::new(0));
        // All are connected before anybody begins.
        let mut clients: Vec<Client> = (0..=PLAYERS + TRANSFERRERS).map(|_| server.client()).collect();
        let mut client = clients.pop().expect("one more than players and tellers");
        let of_tellers = clients.split_off(PLAYERS);
        let (players, transferrers, end, stall) = std::thread::scope(|scope| {
            let (ended, checkpoints, durable) = (&ended, &checkpoints, &durable);
            let players: Vec<_> = clients
                .into_iter()
                .enumerate()
                .map(|(player, client)| scope.spawn(move || play(client, seed, player, done[player] + 1)))
                .collect();
            let transferrers: Vec<_> = chances
                .into_iter()
                .zip(of_tellers)
                .enumerate()
                .map(|(transferrer, (chance, client))| {
                    scope.spawn(move || check_transfers(client, chance, transferrer))
                })
                .collect();
            // Everything is folded now and then, long before the journal has the size for that.
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let requests =
                        [vec![b"BGSAVE".to_vec()], vec![b"INFO".to_vec(), b"persistence".to_vec()]];
                    let Some(info) = ask(&mut client, &requests) else { return };
                    let info = String::from_utf8_lossy(info.text().expect("INFO")).into_owned();
                    checkpoints.lock().expect("no panic").push(field(&info, "journal_checkpoint"));
                    durable.store(field(&info, "journal_durable"), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(saver.below(300) as u64));
                }
            });
            let disk = scope.spawn(move || slowest_write(ended));
            let started = Instant::now();
            let (mut looked, mut stall) = (started, Duration::ZERO);
            while server.is_running() && started.elapsed() < life {
                std::thread::sleep(Duration::from_millis(1));
                stall = stall.max(looked.elapsed());
                looked = Instant::now();
            }
            let end = Instant::now();
            if server.is_running() {
                server.kill();
            } else {
                self.cut_by_itself += 1;
            }
            ended.store(true, Ordering::Relaxed);
            let join = |handles: Vec<std::thread::ScopedJoinHandle<'_, Ops>>| -> Vec<Ops> {
                handles.into_iter().map(|handle| handle.join().expect("no panic")).collect()
            };
            (join(players), join(transferrers), end, stall.max(disk.join().expect("no panic")))
        });
        let unanswered = players
            .iter()
            .any(|ops| ops.begun > ops.acknowledged.last().map_or(0, |acknowledged| acknowledged.0));
        self.cut_while_writing += u64::from(unanswered);
        let checkpoints = checkpoints.into_inner().expect("no panic");
        self.folded += u64::from(checkpoints.first() < checkpoints.last());
        Life { players, transferrers, end, stall, durable: durable.into_inner() }
    }

    /// What is there must follow from what was done.
    fn check(&mut self, server: &TestServer, life: &Life) {
        let newest = server.info("journal_newest");
        assert!(newest >= life.durable, "of {} changes that were on disk {newest} are left", life.durable);
        let mut found = settled(server);
        let number = check_shared(&mut found).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert!(number >= self.number, "the number {number} was {} in the life before", self.number);
        self.number = number;
        for ops in &life.transferrers {
            self.check_lost(&format!("the number is {number}"), ops.lost(number, life.end), life.stall);
        }
        let mut begun = self.model.done;
        for (player, ops) in life.players.iter().enumerate() {
            let key = (0, workload::done_key(player).into_bytes());
            let done =
                found.remove(&key).map_or(0, |held| held[0].trim_matches('"').parse().expect("a number"));
            let lost = ops.lost(done, life.end);
            self.check_lost(&format!("player {player} has done {done}"), lost, life.stall);
            // The last step that was found before may have been found without its number.
            assert!(done + 1 >= self.model.done[player], "player {player} has gone back to {done}");
            assert!(done <= ops.begun, "player {player} has never begun {done}");
            begun[player] = ops.begun;
            if done > self.model.done[player] {
                self.model.advance(player, done);
            }
        }
        // Of a player's next step everything may be there but its number.
        let differing = contents::difference(&found, &self.model.contents());
        for (player, begun) in begun.into_iter().enumerate() {
            let differs = differing.keys().any(|(_, name)| workload::owner(name) == Some(player));
            if differs && self.model.done[player] < begun {
                let next = self.model.done[player] + 1;
                self.model.advance(player, next);
            }
        }
        let differing = contents::difference(&found, &self.model.contents());
        let lines: Vec<&String> = differing.values().collect();
        assert!(differing.is_empty(), "after {:?}: {lines:#?}", self.model.done);
    }

    /// Nothing may be lost with sync, and with periodic only what was told shortly before the kill.
    fn check_lost(&mut self, what: &str, lost: Option<Duration>, stall: Duration) {
        let Some(lost) = lost else { return };
        // A round takes several turns on the processor and on the disk, and each may be waited for.
        assert!(
            !self.sync && lost < WINDOW + 4 * stall,
            "{what}, but more was told {lost:?} before the kill; the machine stalled for {stall:?} at most"
        );
        self.lost = self.lost.max(lost);
    }

    /// Two more lives in which nothing happens: that must change nothing. The account of bytes, which follows each
    /// change, is as good as a new one, but for the room that strings have left after they grew.
    fn rest(&mut self) -> TestServer {
        let server = self.start();
        let before = settled(&server);
        let collections = collection_bytes(&server, &before);
        assert_eq!(server.client().run("SAVE"), Value::Status(b"OK".to_vec()));
        server.kill();
        let mut account = None;
        for _ in 0..2 {
            let server = self.start();
            let found = settled(&server);
            let differing = contents::difference(&found, &before);
            assert!(differing.is_empty(), "an idle server has changed: {:#?}", differing.values());
            assert_eq!(collection_bytes(&server, &found), collections);
            let bytes = server.info("used_memory");
            assert_eq!(*account.get_or_insert(bytes), bytes, "the account of bytes");
            server.kill();
        }
        self.start()
    }

    /// Kills it before it says that it is ready.
    fn stumble(&mut self) {
        let durability = if self.sync { "sync" } else { "periodic" };
        let flags = ["--resp", "127.0.0.1:0", "--http", "off", "--grpc", "off", "--durability", durability];
        let mut command = process::command(&flags);
        command.args(["--data-dir", self.dir.text()]);
        let mut child = command
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("it starts");
        std::thread::sleep(Duration::from_millis(self.chance.below(400) as u64));
        child.kill().expect("it runs");
        child.wait().expect("a child");
        self.cut_while_starting += 1;
    }
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: a number")))
}

fn run_history(sync: bool) {
    let seed = setting("MOONSHARD_CRASH_SEED").unwrap_or(1);
    println!("seed {seed}");
    let until = setting("MOONSHARD_CRASH_SECONDS").map(|long| Instant::now() + Duration::from_secs(long));
    let mut story = Story {
        dir: TempDir::new("crash"),
        sync,
        seed,
        chance: Chance::new(seed),
        model: Model::new(seed),
        number: 0,
        doomed: false,
        cut_while_writing: 0,
        cut_while_starting: 0,
        cut_by_itself: 0,
        folded: 0,
        lost: Duration::ZERO,
    };
    // Already the folder's making is cut off.
    story.stumble();
    story.stumble();
    let mut server = story.start();
    for life in 1.. {
        let acknowledged = story.live(server);
        if story.chance.percent(30) {
            story.stumble();
        }
        server = story.start();
        story.check(&server, &acknowledged);
        if life % 3 == 0 {
            server.kill();
            server = story.rest();
        } else if story.chance.percent(50) {
            server.kill();
            server = story.start_doomed();
        }
        if until.map_or(life >= LIVES[usize::from(sync)], |until| Instant::now() >= until) {
            break;
        }
    }
    let steps: u64 = story.model.done.iter().sum();
    println!(
        "sync {sync}: {steps} steps, number {}, {} kills while writing, {} while starting, {} at a fail point, \
         {} lives that folded, {:?} lost at most",
        story.number,
        story.cut_while_writing,
        story.cut_while_starting,
        story.cut_by_itself,
        story.folded,
        story.lost
    );
    assert!(story.cut_while_writing > 0, "no kill came in the middle of something");
    // With periodic a short run may have too few rounds for that.
    assert!(!sync || !cfg!(debug_assertions) || story.cut_by_itself > 0, "no fail point was reached");
    assert!(story.folded > 0, "nothing was ever folded");
}

#[test]
fn nothing_that_was_acknowledged_is_lost_with_sync() {
    let _permit = permits::disk();
    run_history(true);
}

#[test]
fn only_the_last_moment_is_lost_with_periodic() {
    let _permit = permits::disk_alone();
    run_history(false);
}

#[test]
fn evicted_keys_stay_away() {
    let dir = TempDir::new("evicted");
    let flags = ["--data-dir", dir.text(), "--durability", "sync"];
    let bounded = ["--maxmemory", "200000", "--maxmemory-policy", "allkeys-lru"];
    let server = TestServer::start(&[&flags[..], &bounded].concat());
    let mut client = server.client();
    let value = "x".repeat(1000);
    for number in 0..400 {
        assert_eq!(client.call(["SET", &format!("key{number}"), &value]), Value::Status(b"OK".to_vec()));
    }
    let evicted = server.info("evicted_keys");
    assert!(evicted > 100, "{evicted}");
    // Looking evicts no more.
    client.run("CONFIG SET maxmemory 0");
    wait_until("all is kept", || server.info("journal_durable") == server.info("journal_newest"));
    let before = contents::read(&mut client);
    server.kill();
    let server = TestServer::start(&flags);
    let differing = contents::difference(&contents::read(&mut server.client()), &before);
    assert!(differing.is_empty(), "{:#?}", differing.values());
}
