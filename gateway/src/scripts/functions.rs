//! The libraries of functions that are loaded.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::RwLock;
use resp::{ReplyLimits, Value};
use script::{FUNCTION_FLAGS, Script};
use store_engine::CommandError;

use crate::scripts::options::{BadOption, Flags, Options};
use crate::telemetry::script_stats::Stats;

/// A function that a library has registered.
pub struct Function {
    /// As its library spells it; callers may use any case.
    pub name: Box<str>,
    /// What its library says about it.
    pub description: Option<Vec<u8>>,
    /// What it was registered with.
    pub flags: Flags,
    /// What its library's first line says of all its functions.
    pub options: Options,
    /// Where it runs: its library, shared with the others of it.
    pub script: Arc<Script>,
    /// What its runs did.
    pub stats: Stats,
}

/// The text of a library, its first line understood.
pub struct Outline<'a> {
    /// The library's name.
    pub name: Box<str>,
    /// How its functions are run, as scripts say it in their headers. Flags are given to each function instead.
    pub options: Options,
    /// All of it, as FUNCTION LIST and DUMP give it back.
    pub text: &'a [u8],
    /// The text for Lua. The first line is empty, so that line numbers stay the author's own.
    pub body: &'a [u8],
}

impl<'a> Outline<'a> {
    /// Reads the first line, `#!lua name=…`, and the options behind it.
    pub fn parse(text: &'a [u8]) -> Result<Outline<'a>, CommandError> {
        const INVALID: CommandError = CommandError::new("ERR Invalid library metadata");
        if !text.starts_with(b"#!") {
            return Err(CommandError::new("ERR Missing library metadata"));
        }
        // Redis looks for the line's end as in a C string.
        let end = text.iter().position(|byte| matches!(byte, b'\n' | 0)).filter(|&end| text[end] == b'\n');
        let (line, body) = text.split_at(end.ok_or(INVALID)?);
        let words = resp::split_words(line).ok_or(INVALID)?;
        let (mut name, mut options) = (None, Options::default());
        for word in &words[1..] {
            match word.split_at_checked(5) {
                Some((key, _)) if key.eq_ignore_ascii_case(b"name=") && name.is_some() => {
                    return Err(CommandError::new(
                        "ERR Invalid metadata value, name argument was given multiple times",
                    ));
                }
                Some((key, value)) if key.eq_ignore_ascii_case(b"name=") => name = Some(value),
                _ => set_option(&mut options, &String::from_utf8_lossy(word))?,
            }
        }
        let name = name.ok_or(CommandError::new("ERR Library name was not given"))?;
        let name = valid_name(name).ok_or(CommandError::new(
            "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
        ))?;
        let engine = &words[0][2..];
        if !engine.eq_ignore_ascii_case(b"lua") {
            let engine = String::from_utf8_lossy(engine);
            return Err(CommandError::owned(format!("ERR Engine '{engine}' not found")));
        }
        Ok(Outline { name: name.into(), options, text, body })
    }
}

/// Adds one of our options. Redis knows none but the name.
fn set_option(options: &mut Options, word: &str) -> Result<(), CommandError> {
    let known = word.split_once('=').filter(|(key, _)| *key != "flags");
    let set = known.map_or(Err(BadOption::Key(word.to_owned())), |(key, value)| options.set(key, value));
    set.map_err(|bad| {
        CommandError::owned(match bad {
            BadOption::Value(word, expected) => {
                format!("ERR Invalid value in library metadata: {word}, expected {expected}")
            }
            BadOption::Key(_) | BadOption::Flag(_) => format!("ERR Invalid metadata value given: {word}"),
        })
    })
}

fn valid_name(name: &[u8]) -> Option<&str> {
    let valid = !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    std::str::from_utf8(name).ok().filter(|_| valid)
}

/// A library that is loaded.
pub struct Library {
    /// Its name.
    pub name: Box<str>,
    /// Its text with the first line.
    pub text: Box<[u8]>,
    /// What it has registered.
    pub functions: Vec<Arc<Function>>,
}

impl Library {
    /// Takes down what `script` has registered while it was loaded: `reply` is the guest's word for it, in which
    /// everything is checked.
    pub fn new(outline: &Outline<'_>, script: Script, reply: &[u8]) -> Result<Library, CommandError> {
        const INVALID: CommandError =
            CommandError::new("SCRIPTTRAP the sandbox did not report what the library registered");
        let entries = match Value::parse(reply, ReplyLimits::default()) {
            Ok(Value::Array(entries)) => entries,
            Ok(Value::Error(text)) => {
                return Err(CommandError::owned(String::from_utf8_lossy(&text).into_owned()));
            }
            _ => return Err(INVALID),
        };
        if entries.is_empty() {
            return Err(CommandError::new("ERR No functions registered"));
        }
        let script = Arc::new(script);
        let functions = entries.into_iter().map(|entry| {
            let Value::Array(fields) = entry else { return None };
            let [Value::Bulk(name), description, Value::Integer(flags)] =
                <[Value; 3]>::try_from(fields).ok()?
            else {
                return None;
            };
            let description = match description {
                Value::Null => None,
                Value::Bulk(text) => Some(text),
                _ => return None,
            };
            let name = valid_name(&name)?.into();
            let bits = u32::try_from(flags).ok()?;
            let names = FUNCTION_FLAGS.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| name);
            let flags = Flags(names.filter_map(Flags::named).fold(0, |flags, flag| flags | flag.0));
            let (options, script, stats) = (outline.options, script.clone(), Stats::default());
            Some(Arc::new(Function { name, description, flags, options, script, stats }))
        });
        let functions = functions.collect::<Option<_>>().ok_or(INVALID)?;
        Ok(Library { name: outline.name.clone(), text: outline.text.into(), functions })
    }

    /// Bytes of its text, and of its source and image.
    fn bytes(&self) -> usize {
        self.text.len() + self.functions.first().map_or(0, |function| function.script.bytes())
    }
}

/// Libraries whose names and functions do not collide.
#[derive(Clone, Default)]
pub struct Libraries {
    by_name: BTreeMap<Box<str>, Arc<Library>>,
    /// By name in lower case.
    functions: HashMap<Vec<u8>, Arc<Function>, RandomState>,
}

impl Libraries {
    /// Whether there is a library of this name.
    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// All libraries by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Library>> {
        self.by_name.values()
    }

    /// How many libraries and functions there are.
    pub fn counts(&self) -> (usize, usize) {
        (self.by_name.len(), self.functions.len())
    }

    /// Bytes of texts and images.
    pub fn bytes(&self) -> usize {
        self.all().map(|library| library.bytes()).sum()
    }

    /// Adds a library of a new name. After an error part of it is there.
    pub fn add(&mut self, library: Arc<Library>) -> Result<(), CommandError> {
        for function in &library.functions {
            let key = function.name.to_ascii_lowercase().into_bytes();
            if self.functions.insert(key, function.clone()).is_some() {
                let text = format!("ERR Function {} already exists", function.name);
                return Err(CommandError::owned(text));
            }
        }
        self.by_name.insert(library.name.clone(), library);
        Ok(())
    }

    /// Removes a library; whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(library) = self.by_name.remove(name) else { return false };
        for function in &library.functions {
            self.functions.remove(function.name.to_ascii_lowercase().as_bytes());
        }
        true
    }
}

/// The libraries of this server, which change as a whole.
#[derive(Default)]
pub struct Functions {
    current: RwLock<Arc<Libraries>>,
}

impl Functions {
    /// The libraries as they are now.
    pub fn libraries(&self) -> Arc<Libraries> {
        self.current.read().clone()
    }

    /// The function of this name, in any case.
    pub fn get(&self, name: &[u8]) -> Option<Arc<Function>> {
        self.current.read().functions.get(&name.to_ascii_lowercase()).cloned()
    }

    /// Puts these in the place of all.
    pub fn replace(&self, libraries: Arc<Libraries>) {
        *self.current.write() = libraries;
    }

    /// Changes the libraries, or leaves all as it was if `change` fails. Calls under way go on with what they have.
    pub fn change(
        &self,
        change: impl FnOnce(&mut Libraries) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        let mut current = self.current.write();
        let mut next = Libraries::clone(&current);
        change(&mut next)?;
        *current = Arc::new(next);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &str, functions: &[&str]) -> Result<Arc<Library>, CommandError> {
        let text = format!("#!lua name={name}\n");
        let entries = functions.iter().map(|name| format!("*3\r\n${}\r\n{name}\r\n_\r\n:1\r\n", name.len()));
        let reply = format!("*{}\r\n{}", functions.len(), entries.collect::<String>());
        Library::new(&Outline::parse(text.as_bytes())?, Script::new(b""), reply.as_bytes()).map(Arc::new)
    }

    #[test]
    fn what_the_guest_tells_is_checked() {
        let outline = Outline::parse(b"#!lua name=lib\n").unwrap();
        let described = |reply: &[u8]| {
            let made = Library::new(&outline, Script::new(b""), reply);
            made.map(|library| library.functions.len()).map_err(|error| error.code().to_owned())
        };
        assert_eq!(described(b"*1\r\n*3\r\n$1\r\nf\r\n$4\r\ntext\r\n:31\r\n"), Ok(1));
        assert_eq!(described(b"*0\r\n"), Err("ERR".into()));
        assert_eq!(described(b"-ERR Error compiling function: x\r\n"), Err("ERR".into()));
        for reply in [
            &b"+OK\r\n"[..],
            b"*1\r\n:1\r\n",
            b"*1\r\n*2\r\n$1\r\nf\r\n_\r\n",
            b"*1\r\n*3\r\n$1\r\n-\r\n_\r\n:0\r\n",
            b"*1\r\n*3\r\n$0\r\n\r\n_\r\n:0\r\n",
            b"*1\r\n*3\r\n$1\r\nf\r\n:1\r\n:0\r\n",
            b"*1\r\n*3\r\n$1\r\nf\r\n_\r\n:-1\r\n",
            b"*1\r\n*3\r\n$1\r\nf",
            b"",
        ] {
            assert_eq!(described(reply), Err("SCRIPTTRAP".into()), "{}", reply.escape_ascii());
        }
    }

    #[test]
    fn the_first_line_says_how_functions_are_run() {
        let described = |line: &str| {
            Outline::parse(format!("#!lua {line}\n").as_bytes()).map(|outline| outline.options.words())
        };
        let wanted =
            ["fuel=7", "timeout=20", "memory=2097152", "on-error=rollback", "undeclared-keys=reject"];
        let line = "fuel=7 name=lib timeout=20 memory=2mb on-error=rollback undeclared-keys=reject";
        assert_eq!(described(line).unwrap(), wanted);
        for (word, error) in [
            ("flags=no-writes", "ERR Invalid metadata value given: flags=no-writes"),
            ("colour=red", "ERR Invalid metadata value given: colour=red"),
            ("fuel", "ERR Invalid metadata value given: fuel"),
            (
                "fuel=much",
                "ERR Invalid value in library metadata: fuel=much, expected a whole number of at least 1",
            ),
        ] {
            assert_eq!(described(&format!("name=lib {word}")).unwrap_err().text(), error);
        }
    }

    #[test]
    fn flags_keep_their_names() {
        let outline = Outline::parse(b"#!lua name=lib\n").unwrap();
        for (bit, name) in FUNCTION_FLAGS {
            let reply = format!("*1\r\n*3\r\n$1\r\nf\r\n_\r\n:{bit}\r\n");
            let library = Library::new(&outline, Script::new(b""), reply.as_bytes()).unwrap();
            assert_eq!(library.functions[0].flags.names().collect::<Vec<_>>(), [name]);
        }
    }

    #[test]
    fn a_failed_change_changes_nothing() {
        let functions = Functions::default();
        functions.change(|all| all.add(library("one", &["f", "g"])?)).unwrap();
        let error = functions.change(|all| {
            all.remove("one");
            all.add(library("two", &["h", "i"])?)?;
            all.add(library("three", &["H"])?)
        });
        assert_eq!(error.unwrap_err().text(), "ERR Function H already exists");
        assert_eq!(functions.libraries().counts(), (1, 2));
        assert!(
            functions
                .get(b"F")
                .is_some_and(|function| &*function.name == "f" && function.flags == Flags::NO_WRITES)
        );
        assert!(functions.get(b"h").is_none());
        let mut removed = Vec::new();
        functions
            .change(|all| {
                removed = ["one", "one", "two"].map(|name| all.remove(name)).into();
                Ok(())
            })
            .unwrap();
        assert_eq!(removed, [true, false, false]);
        assert!(functions.get(b"f").is_none());
        assert_eq!(functions.libraries().counts(), (0, 0));
    }

    #[test]
    fn one_library_cannot_tell_its_functions_apart_by_case() {
        let mut all = Libraries::default();
        let error = all.add(library("one", &["f", "F"]).unwrap()).unwrap_err();
        assert_eq!(error.text(), "ERR Function F already exists");
    }
}
