//! Types of parameters: how a value is read from text, kept, and written as text again.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use store_engine::notice;

use super::cell::{
    Address, AddressCell, AddressesCell, FolderCell, NamesCell, Number, OutputLimit, OutputLimits, Secret,
    TextCell,
};
use super::values::Config;

/// A parameter's type with the cell its value is kept in.
#[derive(Clone)]
pub enum Kind {
    /// A whole number.
    Integer(RangeInclusive<i64>, fn(&Config) -> &Number),
    /// A whole number from -1 on, which means never; kept as the largest number.
    OrNever(fn(&Config) -> &Number),
    /// A number of bytes, with units as in redis.conf.
    Bytes(RangeInclusive<i64>, fn(&Config) -> &Number),
    /// A number of bytes, or a part of `maxmemory` in percent; kept as the bytes, or as the percentage behind [`PERCENT`].
    BytesOrPercent(fn(&Config) -> &Number),
    /// One of some words, separated by `|`, kept as its place among them.
    Word(&'static str, fn(&Config) -> &Number),
    /// Any of some words, separated by `|`, kept as a bit for each place; in a text they are separated by commas,
    /// semicolons or blanks.
    Words(&'static str, fn(&Config) -> &Number),
    /// Classes of keyspace notifications, kept as the bits of [`notice::class`].
    Events(fn(&Config) -> &Number),
    /// Where to listen. `off` is allowed if the flag says so.
    Address(bool, fn(&Config) -> &AddressCell),
    /// Limits of what clients have not read, by class.
    OutputLimits(fn(&Config) -> &OutputLimits),
    /// A folder, or `none`.
    Folder(fn(&Config) -> &FolderCell),
    /// A file, or `none`.
    File(fn(&Config) -> &FolderCell),
    /// A text that is no flag, since flags are seen by all who may list processes.
    Secret(fn(&Config) -> &Secret),
    /// Addresses of others, separated by commas, or `none`.
    Addresses(fn(&Config) -> &AddressesCell),
    /// Names of a sort, or `none`, or `*` for all; separated by commas or blanks.
    Names(Sort, fn(&Config) -> &NamesCell),
    /// A share from 0 to 1, kept as the bits of a floating point number.
    Ratio(fn(&Config) -> &Number),
    /// A text of this form.
    Text(Form, fn(&Config) -> &TextCell),
}

/// The bit of a number that is a percentage.
pub const PERCENT: u64 = 1 << 63;

/// What a text has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `http://HOST:PORT`, the same with `https`, or `none`.
    Url,
    /// A word.
    Word,
    /// Numbers from 0 to 100, separated by blanks.
    Percentiles,
}

impl Form {
    fn refuse(self, text: &str) -> Result<(), Refusal> {
        let refused = |why: &str| Err(Refusal(why.to_owned()));
        match self {
            Form::Url if text == "none" => Ok(()),
            Form::Url => {
                let rest = ["http://", "https://"].iter().find_map(|scheme| text.strip_prefix(scheme));
                match rest.map(|rest| rest.trim_end_matches('/')) {
                    Some(rest) if Address::parse(rest).is_some() => Ok(()),
                    _ => refused("argument must be http://HOST:PORT, https://HOST:PORT or none"),
                }
            }
            Form::Word => {
                let is_word =
                    (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
                if is_word { Ok(()) } else { refused("argument must be a word of at most 128 letters") }
            }
            Form::Percentiles => {
                let numbers: Result<Vec<f64>, _> = text.split_ascii_whitespace().map(str::parse).collect();
                match numbers {
                    Ok(numbers) if numbers.iter().all(|number| (0.0..=100.0).contains(number)) => Ok(()),
                    Ok(_) => {
                        refused("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]")
                    }
                    Err(_) => refused("Invalid latency-tracking-info-percentiles parameters"),
                }
            }
        }
    }
}

/// What names name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Hosts, without a port.
    Hosts,
    /// Origins of web pages, such as `https://example.com`.
    Origins,
}

impl Sort {
    fn word(self) -> &'static str {
        match self {
            Sort::Hosts => "hosts",
            Sort::Origins => "origins",
        }
    }

    fn example(self) -> &'static str {
        match self {
            Sort::Hosts => "shard.example.com",
            Sort::Origins => "https://example.com",
        }
    }

    fn fits(self, name: &str) -> bool {
        let host = match self {
            Sort::Hosts => Some(name),
            Sort::Origins => name.strip_prefix("http://").or_else(|| name.strip_prefix("https://")),
        };
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        host.is_some_and(|host| !host.is_empty() && host.bytes().all(letter))
    }
}

/// A value that was read and found good.
#[derive(Debug, PartialEq, Eq)]
pub enum Value {
    /// A number, or the place of a word.
    Number(u64),
    /// An address, or none for `off`.
    Address(Option<Address>),
    /// Class, then hard limit, soft limit, seconds.
    OutputLimits(Vec<(&'static str, [u64; 3])>),
    /// A folder or a file, or none.
    Folder(Option<PathBuf>),
    /// A secret.
    Secret(String),
    /// Addresses.
    Addresses(Vec<Address>),
    /// Names.
    Names(Vec<String>),
    /// A text.
    Text(String),
}

/// What is wrong with a text, in the words of `CONFIG SET`.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl Refusal {
    fn range(range: &RangeInclusive<i64>) -> Refusal {
        Refusal(format!("argument must be between {} and {} inclusive", range.start(), range.end()))
    }
}

impl Kind {
    /// Reads a value.
    pub fn parse(&self, text: &str) -> Result<Value, Refusal> {
        match self {
            Kind::Integer(range, _) => {
                let number = integer(text)
                    .ok_or_else(|| Refusal("argument couldn't be parsed into an integer".to_owned()))?;
                within(range, number)
            }
            Kind::OrNever(_) => match integer(text) {
                Some(number @ -1..) => Ok(Value::Number(u64::try_from(number).unwrap_or(u64::MAX))),
                Some(_) => Err(Refusal::range(&(-1..=i64::MAX))),
                None => Err(Refusal("argument couldn't be parsed into an integer".to_owned())),
            },
            Kind::Bytes(range, _) => {
                let number =
                    bytes(text).ok_or_else(|| Refusal("argument must be a memory value".to_owned()))?;
                within(range, number)
            }
            Kind::BytesOrPercent(_) => {
                let wrong = || Refusal("argument must be a memory or percent value".to_owned());
                let number = |text: &str| integer(text).and_then(|number| u64::try_from(number).ok());
                match text.strip_suffix('%').map(number) {
                    Some(Some(0)) => Ok(Value::Number(0)),
                    Some(Some(percent @ ..=100)) => Ok(Value::Number(PERCENT | percent)),
                    Some(Some(_)) => {
                        Err(Refusal("percentage argument must be less or equal to 100".to_owned()))
                    }
                    Some(None) => Err(wrong()),
                    None => within(&(0..=i64::MAX), bytes(text).ok_or_else(wrong)?),
                }
            }
            Kind::Word(words, _) => match words.split('|').position(|word| text.eq_ignore_ascii_case(word)) {
                Some(at) => Ok(Value::Number(at as u64)),
                None if *words == "no|yes" => Err(Refusal("argument must be 'yes' or 'no'".to_owned())),
                None => {
                    let words = words.replace('|', ", ");
                    Err(Refusal(format!("argument(s) must be one of the following: {words}")))
                }
            },
            Kind::Words(words, _) => {
                let mut bits = 0;
                for part in text.split([',', ';', ' ']).filter(|part| !part.is_empty() && *part != "none") {
                    let at = words.split('|').position(|word| part.eq_ignore_ascii_case(word));
                    bits |= 1 << at.ok_or_else(|| Refusal(format!("Invalid flag: {part}")))?;
                }
                Ok(Value::Number(bits))
            }
            Kind::Events(_) => match notice::parse_classes(text) {
                Some(classes) => Ok(Value::Number(classes.into())),
                None => Err(Refusal("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned())),
            },
            Kind::Address(true, _) if text.eq_ignore_ascii_case("off") => Ok(Value::Address(None)),
            Kind::Address(..) => match Address::parse(text) {
                Some(address) => Ok(Value::Address(Some(address))),
                None => Err(Refusal("argument must be HOST:PORT".to_owned())),
            },
            Kind::OutputLimits(_) => output_limits(text),
            Kind::Folder(_) | Kind::File(_) if text.eq_ignore_ascii_case("none") => Ok(Value::Folder(None)),
            Kind::Folder(_) if text.is_empty() => {
                Err(Refusal("argument must be a directory or none".to_owned()))
            }
            Kind::File(_) if text.is_empty() => Err(Refusal("argument must be a file or none".to_owned())),
            Kind::Folder(_) | Kind::File(_) => Ok(Value::Folder(Some(text.into()))),
            Kind::Secret(_) => Ok(Value::Secret(text.to_owned())),
            Kind::Addresses(_) if text.eq_ignore_ascii_case("none") => Ok(Value::Addresses(Vec::new())),
            Kind::Addresses(_) => {
                let addresses: Option<Vec<Address>> = text.split(',').map(Address::parse).collect();
                let wrong = || Refusal("argument must be HOST:PORT,HOST:PORT,... or none".to_owned());
                addresses.map(Value::Addresses).ok_or_else(wrong)
            }
            Kind::Ratio(_) => match text.parse::<f64>() {
                Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(Value::Number(ratio.to_bits())),
                _ => Err(Refusal("argument must be between 0 and 1 inclusive".to_owned())),
            },
            Kind::Text(form, _) => form.refuse(text).map(|()| Value::Text(text.to_owned())),
            Kind::Names(sort, _) => {
                let names = text.split([',', ' ']).filter(|name| !name.is_empty() && *name != "none");
                let names: Vec<String> = names.map(|name| name.trim_end_matches('/').to_owned()).collect();
                match names.iter().all(|name| name == "*" || sort.fits(name)) {
                    true => Ok(Value::Names(names)),
                    false => Err(Refusal(format!(
                        "argument must be none, * or {}, such as {}",
                        sort.word(),
                        sort.example()
                    ))),
                }
            }
        }
    }

    /// Puts a value that [`Kind::parse`] gave into its cell.
    pub fn store(&self, config: &Config, value: Value) {
        match (self, value) {
            (
                Kind::Integer(_, cell)
                | Kind::Bytes(_, cell)
                | Kind::BytesOrPercent(cell)
                | Kind::Word(_, cell)
                | Kind::Words(_, cell)
                | Kind::OrNever(cell)
                | Kind::Ratio(cell)
                | Kind::Events(cell),
                Value::Number(number),
            ) => cell(config).set(number),
            (Kind::Address(_, cell), Value::Address(address)) => cell(config).set(address),
            (Kind::OutputLimits(cell), Value::OutputLimits(limits)) => {
                for (class, [hard, soft, seconds]) in limits {
                    for (_, limit) in cell(config).classes().into_iter().filter(|(name, _)| *name == class) {
                        limit.hard.set(hard);
                        limit.soft.set(soft);
                        limit.soft_seconds.set(seconds);
                    }
                }
            }
            (Kind::Folder(cell) | Kind::File(cell), Value::Folder(folder)) => cell(config).set(folder),
            (Kind::Secret(cell), Value::Secret(text)) => cell(config).set(text),
            (Kind::Addresses(cell), Value::Addresses(addresses)) => cell(config).set(addresses),
            (Kind::Names(_, cell), Value::Names(names)) => cell(config).set(names),
            (Kind::Text(_, cell), Value::Text(text)) => cell(config).set(text),
            (_, value) => unreachable!("a value of another type: {value:?}"),
        }
    }

    /// The value as `CONFIG GET` shows it: bytes as a plain number.
    pub fn render(&self, config: &Config) -> String {
        match self {
            Kind::Integer(_, cell) | Kind::Bytes(_, cell) => cell(config).get().to_string(),
            Kind::BytesOrPercent(cell) => match cell(config).get() {
                number if number & PERCENT != 0 => format!("{}%", number & !PERCENT),
                number => number.to_string(),
            },
            Kind::OrNever(cell) => match i64::try_from(cell(config).get()) {
                Ok(number) => number.to_string(),
                Err(_) => "-1".to_owned(),
            },
            Kind::Word(words, cell) => {
                words.split('|').nth(cell(config).get_usize()).unwrap_or_default().to_owned()
            }
            Kind::Words(words, cell) => {
                let set = cell(config).get();
                let words = words.split('|').enumerate().filter(|(at, _)| set & (1 << at) != 0);
                words.map(|(_, word)| word).collect::<Vec<_>>().join(" ")
            }
            Kind::Events(cell) => notice::show_classes(u32::try_from(cell(config).get()).unwrap_or_default()),
            Kind::Address(_, cell) => match cell(config).get() {
                Some(address) => address.to_string(),
                None => "off".to_owned(),
            },
            Kind::OutputLimits(cell) => {
                let line = |(class, limit): (&str, &OutputLimit)| {
                    format!("{class} {} {} {}", limit.hard.get(), limit.soft.get(), limit.soft_seconds.get())
                };
                cell(config).classes().map(line).join(" ")
            }
            Kind::Folder(cell) | Kind::File(cell) => match cell(config).get() {
                Some(path) => path.display().to_string(),
                None => "none".to_owned(),
            },
            Kind::Secret(cell) => cell(config).get(),
            Kind::Addresses(cell) => match &*cell(config).get() {
                [] => "none".to_owned(),
                addresses => addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(","),
            },
            Kind::Ratio(cell) => f64::from_bits(cell(config).get()).to_string(),
            Kind::Text(_, cell) => cell(config).get(),
            Kind::Names(_, cell) => match cell(config).get() {
                names if names.is_empty() => "none".to_owned(),
                names => names.join(" "),
            },
        }
    }

    /// What is expected, for people.
    pub fn expected(&self) -> String {
        match self {
            Kind::Integer(range, _) if *range.end() == i64::MAX => {
                format!("a whole number of at least {}", range.start())
            }
            Kind::Integer(range, _) => format!("a whole number from {} to {}", range.start(), range.end()),
            Kind::Bytes(range, _) if *range.end() == i64::MAX => {
                format!("a size of at least {}, such as 64mb", humane(*range.start()))
            }
            Kind::Bytes(range, _) => {
                format!("a size from {} to {}, such as 64mb", humane(*range.start()), humane(*range.end()))
            }
            Kind::BytesOrPercent(_) => "a size, or a percentage, such as 64mb or 10%".to_owned(),
            Kind::Word(words, _) => words.replace('|', " or "),
            Kind::Words(words, _) => format!("none or any of {}", words.replace('|', ", ")),
            Kind::OrNever(_) => "a whole number of at least -1".to_owned(),
            Kind::Events(_) => "letters of KEg$lshzxetdmnA, such as KEA".to_owned(),
            Kind::Address(off, _) => {
                format!("HOST:PORT, such as 127.0.0.1:8080{}", if *off { ", or off" } else { "" })
            }
            Kind::OutputLimits(_) => "CLASS HARD SOFT SECONDS ..., such as normal 1gb 64mb 60".to_owned(),
            Kind::Folder(_) => "a directory or none".to_owned(),
            Kind::File(_) => "a file or none".to_owned(),
            Kind::Secret(_) => "a text".to_owned(),
            Kind::Addresses(_) => "HOST:PORT,HOST:PORT,... or none".to_owned(),
            Kind::Names(sort, _) => format!("none, * or {}, such as {}", sort.word(), sort.example()),
            Kind::Ratio(_) => "a number from 0 to 1, such as 0.01".to_owned(),
            Kind::Text(Form::Url, _) => "http://HOST:PORT, https://HOST:PORT or none".to_owned(),
            Kind::Text(Form::Word, _) => "a word".to_owned(),
            Kind::Text(Form::Percentiles, _) => "numbers from 0 to 100, such as 50 99 99.9".to_owned(),
        }
    }

    /// What stands for a value in usage lines.
    pub fn metavar(&self) -> &'static str {
        match self {
            Kind::Integer(..) | Kind::OrNever(_) => "N",
            Kind::Bytes(..) => "BYTES",
            Kind::BytesOrPercent(_) => "BYTES|PERCENT%",
            Kind::Word(words, _) if words.len() > 40 => "WORD",
            Kind::Word(words, _) => words,
            Kind::Words(..) => "FLAGS",
            Kind::Events(_) => "LETTERS",
            Kind::Address(false, _) => "ADDR",
            Kind::Address(true, _) => "ADDR|off",
            Kind::OutputLimits(_) => "LIMITS",
            Kind::Folder(_) => "DIR",
            Kind::File(_) => "FILE",
            Kind::Secret(_) => "TEXT",
            Kind::Addresses(_) => "ADDR,...",
            Kind::Names(..) => "NAMES",
            Kind::Ratio(_) => "RATIO",
            Kind::Text(Form::Url, _) => "URL",
            Kind::Text(Form::Word, _) => "WORD",
            Kind::Text(Form::Percentiles, _) => "N ...",
        }
    }
}

fn within(range: &RangeInclusive<i64>, number: i64) -> Result<Value, Refusal> {
    match u64::try_from(number) {
        Ok(value) if range.contains(&number) => Ok(Value::Number(value)),
        _ => Err(Refusal::range(range)),
    }
}

/// An integer in its one canonical spelling, as `string2ll` of Redis wants it: no plus, no leading zeros.
fn integer(text: &str) -> Option<i64> {
    text.parse::<i64>().ok().filter(|number| number.to_string() == text)
}

/// Bytes with a unit: `k` is 1000, `kb` is 1024, and so on.
pub fn bytes(text: &str) -> Option<i64> {
    let split = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let factor: i64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<i64>().ok()?.checked_mul(factor)
}

/// A size in the largest unit that divides it.
pub fn humane(size: i64) -> String {
    for (unit, name) in [(1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb")] {
        if size != 0 && size % unit == 0 {
            return format!("{}{name}", size / unit);
        }
    }
    size.to_string()
}

/// Groups of `class hard soft seconds`. Of several groups for a class the last counts.
fn output_limits(text: &str) -> Result<Value, Refusal> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let wrong_count = || Refusal("Wrong number of arguments in buffer limit configuration.".to_owned());
    if !words.len().is_multiple_of(4) {
        return Err(wrong_count());
    }
    let mut limits = Vec::new();
    for group in words.chunks_exact(4) {
        let known = OutputLimits::default().classes().map(|(class, _)| class);
        let Some(class) = known.into_iter().find(|class| group[0].eq_ignore_ascii_case(class)) else {
            return Err(Refusal("Invalid client class specified in buffer limit configuration.".to_owned()));
        };
        let seconds = integer(group[3]).filter(|seconds| (0..=i64::from(i32::MAX)).contains(seconds));
        match (bytes(group[1]), bytes(group[2]), seconds) {
            (Some(hard), Some(soft), Some(seconds)) => {
                limits.push((class, [hard, soft, seconds].map(i64::unsigned_abs)));
            }
            _ => {
                let text = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
                return Err(Refusal(text.to_owned()));
            }
        }
    }
    if limits.is_empty() { Err(wrong_count()) } else { Ok(Value::OutputLimits(limits)) }
}

#[cfg(test)]
mod tests {
    use super::{bytes, humane, integer};

    #[test]
    fn sizes_have_the_units_of_redis_conf() {
        for (text, wanted) in [
            ("0", Some(0)),
            ("17", Some(17)),
            ("5B", Some(5)),
            ("2k", Some(2000)),
            ("2kb", Some(2048)),
            ("1Mb", Some(1 << 20)),
            ("3m", Some(3_000_000)),
            ("2GB", Some(2 << 30)),
            ("1g", Some(1_000_000_000)),
            ("", None),
            ("kb", None),
            ("-1", None),
            ("1.5mb", None),
            ("10zb", None),
            (" 2mb", None),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("9223372036854775807kb", None),
        ] {
            assert_eq!(bytes(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn integers_have_one_spelling() {
        for text in ["0", "-1", "12", "9223372036854775807"] {
            assert!(integer(text).is_some(), "{text:?}");
        }
        for text in ["", "+1", "01", "-0", " 1", "0x10", "1.5", "9223372036854775808"] {
            assert!(integer(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit() {
        assert_eq!([0, 1000, 1024, 64 << 20, 4 << 30].map(humane), ["0", "1000", "1kb", "64mb", "4gb"]);
    }
}
