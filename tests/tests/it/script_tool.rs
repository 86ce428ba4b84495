//! `moonshard script`: scripts that are run, checked, tested and measured during their development.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use tests::process::command;
use tests::temp_dir::TempDir;
use tests::{Oracle, TestServer};

const COUNTER: &str = "local n = tonumber(redis.call('GET', KEYS[1]) or 0)
if n >= tonumber(ARGV[1]) then return redis.error_reply('FULL at ' .. n) end
return redis.call('INCR', KEYS[1])
";

const TESTS: &str = "function test_counts()
    assert_equal(1, run('counter.lua', {'seats'}, {2}))
    assert_equal('1', redis.call('GET', 'seats'))
end

function test_is_full()
    redis.call('SET', 'seats', 5)
    assert_error('FULL at 5', run, 'counter.lua', {'seats'}, {5})
end
";

const FAILING_TESTS: &str = "local function pair() return redis.call('MGET', 'seats', 'chairs') end

function test_values()
    assert_equal({false, 'x'}, pair())
end

function test_begins_with_an_empty_store()
    assert_equal(0, redis.call('DBSIZE'))
    redis.call('SET', 'seats', 'taken')
    assert_equal('taken', redis.call('GET', 'seats'))
end

function test_begins_with_an_empty_store_too()
    assert_equal(0, redis.call('DBSIZE'))
end

function test_script_fails()
    run('counter.lua', {'seats'}, {})
end

function test_call_fails()
    redis.call('GTE', 'seats')
end

function test_there_is_no_error()
    assert_error('FULL', run, 'counter.lua', {'seats'}, {1})
end
";

/// A directory with files of Lua.
struct Files(TempDir);

impl Files {
    fn new(files: &[(&str, &str)]) -> Files {
        let directory = TempDir::made("scripts");
        for (name, text) in files {
            fs::write(directory.path().join(name), text).expect("it is written");
        }
        Files(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Runs `moonshard script` there.
    fn tool(&self, line: &str, environment: &[(&str, &str)]) -> Output {
        let args: Vec<&str> = ["script"].into_iter().chain(line.split(' ')).collect();
        let mut command = command(&args);
        command.current_dir(self.path()).env_remove("REDISCLI_AUTH").envs(environment.iter().copied());
        command.output().expect("it starts")
    }

    /// Its exit code, what it printed, and its errors.
    fn run(&self, line: &str) -> (Option<i32>, String, String) {
        let output = self.tool(line, &[]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    /// What it printed when it ended with `code`.
    fn printed(&self, line: &str, code: i32) -> String {
        let (found, out, err) = self.run(line);
        assert_eq!((found, &*err), (Some(code), ""), "{line}: {out}");
        out
    }
}

#[test]
fn a_script_runs_in_an_empty_store_and_leaves_nothing() {
    let files = Files::new(&[("counter.lua", COUNTER), ("reply.lua", "return {1, 'a', {false}, ARGV}")]);
    for _ in 0..2 {
        assert_eq!(files.printed("run counter.lua --keys seats --args 2", 0), "(integer) 1\n");
    }
    assert_eq!(files.printed("run counter.lua --keys seats --args 0", 1), "(error) FULL at 0\n");
    let reply = files.printed("run reply.lua --keys k --args -1 x", 0);
    assert_eq!(reply, "1) (integer) 1\n2) \"a\"\n3) 1) (nil)\n4) 1) \"-1\"\n   2) \"x\"\n");
    assert_eq!(files.printed("run reply.lua --json", 0), "[1,\"a\",[null],[]]\n");
    let names = fs::read_dir(files.path()).expect("a directory").count();
    assert_eq!(names, 2, "no data, and nothing else");
    let (code, out, err) = files.run("run none.lua");
    assert_eq!((code, &*out), (Some(2), ""));
    assert_eq!(err, "moonshard: cannot read none.lua: No such file or directory (os error 2)\n");
}

#[test]
fn a_dry_run_shows_what_would_change() {
    let server = TestServer::start(&[]);
    server.client().run("SET seats 1");
    let files = Files::new(&[("counter.lua", COUNTER), ("fails.lua", "error('stop')")]);
    let without_fuel = |text: String| text.split("; fuel").next().unwrap_or_default().to_owned();
    let line = "dry-run counter.lua --keys seats --args 2";
    let local = without_fuel(files.printed(line, 0));
    assert_eq!(local, "(integer) 1\n+ seats\n    + string \"1\"\n1 key would change");
    let at = format!("--server {}", server.address());
    let remote = without_fuel(files.printed(&format!("{line} {at}"), 0));
    assert_eq!(remote, "(integer) 2\n~ seats\n    - string \"1\"\n    + string \"2\"\n1 key would change");
    assert_eq!(server.client().run("GET seats"), tests::Value::Bulk("1".into()), "it was undone");
    for place in ["", &format!(" {at}")] {
        let text = files.printed(&format!("dry-run fails.lua{place}"), 1);
        assert!(text.starts_with("(error) ERR user_script:1: stop script: "), "{text}");
    }
    let json = files.printed(&format!("{line} --json"), 0);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["reply"], &json["writes"][0]["key"]), (&1.into(), &"seats".into()));
}

#[test]
fn a_server_that_knows_no_dry_runs_runs_nothing() {
    let Some(oracle) = Oracle::start() else { return };
    let files = Files::new(&[("set.lua", "return redis.call('SET', KEYS[1], ARGV[1])")]);
    let at = format!("--keys k --args v --server {}", oracle.address());
    let (code, out, err) = files.run(&format!("dry-run set.lua {at}"));
    assert_eq!((code, &*out), (Some(2), ""));
    assert!(err.starts_with("moonshard: the server supports no dry runs"), "{err}");
    assert_eq!(files.printed(&format!("run set.lua {at}"), 0), "OK\n");
}

#[test]
fn a_server_is_given_a_password() {
    let server = TestServer::start(&[]);
    server.client().run("CONFIG SET requirepass secret");
    let files = Files::new(&[("one.lua", "return 1"), ("password", "secret\n"), ("wrong", "wrong")]);
    let line = format!("run one.lua --server {}", server.address());
    assert_eq!(files.printed(&format!("{line} --password-file password --user default"), 0), "(integer) 1\n");
    assert_eq!(files.tool(&line, &[("REDISCLI_AUTH", "secret")]).stdout, b"(integer) 1\n");
    let refused = |line: &str| {
        let (code, out, err) = files.run(line);
        assert_eq!((code, &*out), (Some(2), ""), "{err}");
        err.split_once(&server.address().to_string()).map(|(_, why)| why.to_owned()).expect("its address")
    };
    assert_eq!(refused(&line), " requires a password: set --password-file FILE or REDISCLI_AUTH\n");
    let wrong = refused(&format!("{line} --password-file wrong"));
    assert!(wrong.starts_with(" refused the connection: WRONGPASS "), "{wrong}");
}

#[test]
fn mistakes_are_found_with_their_lines() {
    let bad = "local n = redis.call('GTE', KEYS[1])\nlocal m = server.pcall('GET')\nreturn redis.call('SET', 'k', x)";
    let files = Files::new(&[
        ("bad.lua", bad),
        ("syntax.lua", "local a = 1\nif a the\nend"),
        ("header.lua", "#!lua flags=fast\nreturn 1"),
        ("literal.lua", "return redis.call('GET', 'k')"),
        ("counter.lua", COUNTER),
        ("counter_test.lua", TESTS),
    ]);
    insta::assert_snapshot!(files.printed("check bad.lua syntax.lua header.lua literal.lua counter.lua", 1), @r"
    bad.lua:1: error: unknown command 'GTE'
    bad.lua:2: error: wrong number of arguments for 'get' command
    bad.lua:3: error: 'x' is not declared
    bad.lua:3: warning: the key 'k' is a literal; declare it in KEYS
    syntax.lua:2: error: 'then' expected near 'the'
    header.lua:1: error: Unexpected flag in script shebang: fast
    literal.lua:1: warning: the key 'k' is a literal; declare it in KEYS
    ");
    assert_eq!(files.printed("check counter.lua counter_test.lua", 0), "");
    let warning = "literal.lua:1: warning: the key 'k' is a literal; declare it in KEYS\n";
    assert_eq!(files.printed("check literal.lua", 0), warning);
}

#[test]
fn tests_pass_and_fail() {
    let files = Files::new(&[
        ("counter.lua", COUNTER),
        ("counter_test.lua", TESTS),
        ("failing_test.lua", FAILING_TESTS),
        ("syntax_test.lua", "function test_a(\n"),
    ]);
    // Without times, which vary, and the end of the server's own errors.
    let steady = |text: &str| -> String {
        let marks = [" (", " script: ", " in "];
        let cut = |line, mark: &&str| str::split(line, *mark).next().unwrap_or_default();
        text.lines().map(|line| marks.iter().fold(line, cut).to_owned() + "\n").collect()
    };
    let passed = files.printed("test counter_test.lua", 0);
    assert!(passed.contains("\n2 passed, 0 failed in "), "{passed}");
    let text = files.printed("test counter_test.lua failing_test.lua syntax_test.lua --junit results.xml", 1);
    insta::assert_snapshot!(steady(&text), @r#"
    ok    counter_test.lua test_counts
    ok    counter_test.lua test_is_full
    FAIL  failing_test.lua test_values
          failing_test.lua:4: the values differ
          expected: {false, "x"}
          actual:   {false, false}
    ok    failing_test.lua test_begins_with_an_empty_store
    ok    failing_test.lua test_begins_with_an_empty_store_too
    FAIL  failing_test.lua test_script_fails
          failing_test.lua:18: ERR counter.lua:2: attempt to compare nil with number
    FAIL  failing_test.lua test_call_fails
          failing_test.lua:22: ERR unknown command 'GTE', with args beginning with: 'seats' 
    FAIL  failing_test.lua test_there_is_no_error
          failing_test.lua:26: there was no error
    FAIL  syntax_test.lua
          syntax_test.lua:2: <name> expected
    4 passed, 5 failed
    "#);
    let xml = fs::read_to_string(files.file("results.xml")).expect("it is written");
    assert!(xml.contains("<testsuites tests=\"9\" failures=\"5\""), "{xml}");
    assert!(xml.contains("<testcase classname=\"counter_test.lua\" name=\"test_counts\""), "{xml}");
    assert!(xml.contains("<failure message=\"failing_test.lua:4: the values differ\">"), "{xml}");
}

#[test]
fn runs_are_measured() {
    let server = TestServer::start(&[]);
    let files = Files::new(&[("one.lua", "return redis.call('INCR', KEYS[1])"), ("wrong.lua", "return (")]);
    for place in [String::new(), format!(" --server {}", server.address())] {
        let text = files.printed(&format!("bench one.lua --keys n --seconds 1 --clients 2{place}"), 0);
        let names: Vec<&str> = text.lines().map(|line| line.split("  ").next().unwrap_or_default()).collect();
        assert_eq!(names, ["runs", "runs per second", "latency", "fuel per run"], "{text}");
        let text = files.printed(&format!("bench wrong.lua{place}"), 1);
        assert!(text.starts_with("(error) ERR Error compiling script"), "{text}");
    }
}

#[test]
fn definitions_for_editors_compile() {
    let files = Files::new(&[]);
    let definitions = files.printed("definitions lua", 0);
    let compile = "return loadstring(ARGV[1]) and 'compiled' or select(2, loadstring(ARGV[1]))";
    let compiled = TestServer::start(&[]).client().eval(compile, &[], &[&definitions]);
    assert_eq!(compiled, tests::Value::Bulk("compiled".into()));
    let (code, out, err) = files.run("definitions perl");
    assert!(code == Some(2) && out.is_empty() && err.contains("possible values: lua, typescript"), "{err}");
}
