//! Types of parameters: how a value is read from text, kept, and written as text again.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use store_engine::notifications;

use super::cell::{
    Address, AddressCell, AddressesCell, DirCell, NamesCell, Number, OutputLimit, OutputLimits, Secret,
    TextCell,
};
use super::url::Url;
use super::values::Config;

/// A parameter's type with the cell its value is kept in.
#[derive(Clone)]
pub enum ParameterKind {
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
    /// Classes of keyspace notifications, kept as the bits of [`notifications::class`].
    Events(fn(&Config) -> &Number),
    /// Where to listen. `off` is allowed if the flag says so.
    Address(bool, fn(&Config) -> &AddressCell),
    /// Limits of what clients have not read, by class.
    OutputLimits(fn(&Config) -> &OutputLimits),
    /// A folder, or `none`.
    Dir(fn(&Config) -> &DirCell),
    /// A file, or `none`.
    File(fn(&Config) -> &DirCell),
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
    /// A [`Url`] or `none`.
    Url,
    /// A word.
    Word,
    /// Numbers from 0 to 100, separated by blanks.
    Percentiles,
    /// A word, or nothing.
    User,
    /// A host and a port with a blank between them, as REPLICAOF takes them, or nothing.
    Primary,
}

impl Form {
    /// The text as it is shown.
    fn shown(self, text: &str) -> String {
        match self {
            Form::Percentiles => text.split_ascii_whitespace().map(percentile).collect::<Vec<_>>().join(" "),
            Form::Primary => primary(text).flatten().map_or(String::new(), |address| words_of(&address)),
            Form::Url | Form::Word | Form::User => text.to_owned(),
        }
    }

    fn refuse(self, text: &str) -> Result<(), InvalidValue> {
        let refused = |why: &str| Err(InvalidValue(why.to_owned()));
        match self {
            Form::Url if text == "none" => Ok(()),
            Form::Url => {
                if Url::parse(text).is_some() {
                    Ok(())
                } else {
                    refused("argument must be http[s]://HOST[:PORT][/PATH] or none")
                }
            }
            Form::User if text.is_empty() => Ok(()),
            Form::Primary if primary(text).is_some() => Ok(()),
            Form::Primary => refused("argument must be HOST PORT or nothing"),
            Form::Word | Form::User => {
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

/// What a text says of the server to follow: none, or which.
pub fn primary(text: &str) -> Option<Option<Address>> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    match words[..] {
        [] => Some(None),
        [no, one] if no.eq_ignore_ascii_case("no") && one.eq_ignore_ascii_case("one") => Some(None),
        [host, port] => Some(Some(Address::of_words(host, integer(port)?)?)),
        _ => None,
    }
}

/// An address as REPLICAOF takes it.
pub fn words_of(address: &Address) -> String {
    format!("{} {}", address.host, address.port)
}

/// A percentile as Redis shows it.
fn percentile(text: &str) -> String {
    match text.parse::<f64>() {
        Ok(number) => {
            let text = format!("{number:.6}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        Err(_) => text.to_owned(),
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
pub enum ParsedValue {
    /// A number, or the place of a word.
    Number(u64),
    /// An address, or none for `off`.
    Address(Option<Address>),
    /// Class, then hard limit, soft limit, seconds.
    OutputLimits(Vec<(&'static str, [u64; 3])>),
    /// A folder or a file, or none.
    Dir(Option<PathBuf>),
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
pub struct InvalidValue(pub String);

impl InvalidValue {
    fn range(range: &RangeInclusive<i64>) -> InvalidValue {
        InvalidValue(format!("argument must be between {} and {} inclusive", range.start(), range.end()))
    }
}

impl ParameterKind {
    /// Reads a value.
    pub fn parse(&self, text: &str) -> Result<ParsedValue, InvalidValue> {
        match self {
            ParameterKind::Integer(range, _) => {
                let number = integer(text)
                    .ok_or_else(|| InvalidValue("argument couldn't be parsed into an integer".to_owned()))?;
                within(range, number)
            }
            ParameterKind::OrNever(_) => match integer(text) {
                Some(number @ -1..) => Ok(ParsedValue::Number(u64::try_from(number).unwrap_or(u64::MAX))),
                Some(_) => Err(InvalidValue::range(&(-1..=i64::MAX))),
                None => Err(InvalidValue("argument couldn't be parsed into an integer".to_owned())),
            },
            ParameterKind::Bytes(range, _) => {
                let number =
                    bytes(text).ok_or_else(|| InvalidValue("argument must be a memory value".to_owned()))?;
                within(range, number)
            }
            ParameterKind::BytesOrPercent(_) => {
                let wrong = || InvalidValue("argument must be a memory or percent value".to_owned());
                let number = |text: &str| integer(text).and_then(|number| u64::try_from(number).ok());
                match text.strip_suffix('%').map(number) {
                    Some(Some(0)) => Ok(ParsedValue::Number(0)),
                    Some(Some(percent @ ..=100)) => Ok(ParsedValue::Number(PERCENT | percent)),
                    Some(Some(_)) => {
                        Err(InvalidValue("percentage argument must be less or equal to 100".to_owned()))
                    }
                    Some(None) => Err(wrong()),
                    None => within(&(0..=i64::MAX), bytes(text).ok_or_else(wrong)?),
                }
            }
            ParameterKind::Word(words, _) => match words
                .split('|')
                .position(|word| text.eq_ignore_ascii_case(word))
            {
                Some(at) => Ok(ParsedValue::Number(at as u64)),
                None if *words == "no|yes" => Err(InvalidValue("argument must be 'yes' or 'no'".to_owned())),
                None => {
                    let words = words.replace('|', ", ");
                    Err(InvalidValue(format!("argument(s) must be one of the following: {words}")))
                }
            },
            ParameterKind::Words(words, _) => {
                let mut bits = 0;
                for part in text.split([',', ';', ' ']).filter(|part| !part.is_empty() && *part != "none") {
                    let at = words.split('|').position(|word| part.eq_ignore_ascii_case(word));
                    bits |= 1 << at.ok_or_else(|| InvalidValue(format!("Invalid flag: {part}")))?;
                }
                Ok(ParsedValue::Number(bits))
            }
            ParameterKind::Events(_) => match notifications::parse_classes(text) {
                Some(classes) => Ok(ParsedValue::Number(classes.into())),
                None => Err(InvalidValue("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned())),
            },
            ParameterKind::Address(true, _) if text.eq_ignore_ascii_case("off") => {
                Ok(ParsedValue::Address(None))
            }
            ParameterKind::Address(..) => match Address::parse(text) {
                Some(address) => Ok(ParsedValue::Address(Some(address))),
                None => Err(InvalidValue("argument must be HOST:PORT".to_owned())),
            },
            ParameterKind::OutputLimits(_) => output_limits(text),
            ParameterKind::Dir(_) | ParameterKind::File(_) if text.eq_ignore_ascii_case("none") => {
                Ok(ParsedValue::Dir(None))
            }
            ParameterKind::Dir(_) if text.is_empty() => {
                Err(InvalidValue("argument must be a directory or none".to_owned()))
            }
            ParameterKind::File(_) if text.is_empty() => {
                Err(InvalidValue("argument must be a file or none".to_owned()))
            }
            ParameterKind::Dir(_) | ParameterKind::File(_) => Ok(ParsedValue::Dir(Some(text.into()))),
            ParameterKind::Secret(_) => Ok(ParsedValue::Secret(text.to_owned())),
            ParameterKind::Addresses(_) if text.eq_ignore_ascii_case("none") => {
                Ok(ParsedValue::Addresses(Vec::new()))
            }
            ParameterKind::Addresses(_) => {
                let addresses: Option<Vec<Address>> = text.split(',').map(Address::parse).collect();
                let wrong = || InvalidValue("argument must be HOST:PORT,HOST:PORT,... or none".to_owned());
                addresses.map(ParsedValue::Addresses).ok_or_else(wrong)
            }
            ParameterKind::Ratio(_) => match text.parse::<f64>() {
                Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ParsedValue::Number(ratio.to_bits())),
                _ => Err(InvalidValue("argument must be between 0 and 1 inclusive".to_owned())),
            },
            ParameterKind::Text(form, _) => form.refuse(text).map(|()| ParsedValue::Text(form.shown(text))),
            ParameterKind::Names(sort, _) => {
                let names = text.split([',', ' ']).filter(|name| !name.is_empty() && *name != "none");
                let names: Vec<String> = names.map(|name| name.trim_end_matches('/').to_owned()).collect();
                match names.iter().all(|name| name == "*" || sort.fits(name)) {
                    true => Ok(ParsedValue::Names(names)),
                    false => Err(InvalidValue(format!(
                        "argument must be none, * or {}, such as {}",
                        sort.word(),
                        sort.example()
                    ))),
                }
            }
        }
    }

    /// Puts a value that [`ParameterKind::parse`] gave into its cell.
    pub fn store(&self, config: &Config, value: ParsedValue) {
        match (self, value) {
            (
                ParameterKind::Integer(_, cell)
                | ParameterKind::Bytes(_, cell)
                | ParameterKind::BytesOrPercent(cell)
                | ParameterKind::Word(_, cell)
                | ParameterKind::Words(_, cell)
                | ParameterKind::OrNever(cell)
                | ParameterKind::Ratio(cell)
                | ParameterKind::Events(cell),
                ParsedValue::Number(number),
            ) => cell(config).set(number),
            (ParameterKind::Address(_, cell), ParsedValue::Address(address)) => cell(config).set(address),
            (ParameterKind::OutputLimits(cell), ParsedValue::OutputLimits(limits)) => {
                for (class, [hard, soft, seconds]) in limits {
                    for (_, limit) in cell(config).classes().into_iter().filter(|(name, _)| *name == class) {
                        limit.hard.set(hard);
                        limit.soft.set(soft);
                        limit.soft_seconds.set(seconds);
                    }
                }
            }
            (ParameterKind::Dir(cell) | ParameterKind::File(cell), ParsedValue::Dir(dir)) => {
                cell(config).set(dir)
            }
            (ParameterKind::Secret(cell), ParsedValue::Secret(text)) => cell(config).set(text),
            (ParameterKind::Addresses(cell), ParsedValue::Addresses(addresses)) => {
                cell(config).set(addresses)
            }
            (ParameterKind::Names(_, cell), ParsedValue::Names(names)) => cell(config).set(names),
            (ParameterKind::Text(_, cell), ParsedValue::Text(text)) => cell(config).set(text),
            (_, value) => unreachable!("a value of another type: {value:?}"),
        }
    }

    /// The value as `CONFIG GET` shows it: bytes as a plain number.
    pub fn render(&self, config: &Config) -> String {
        match self {
            ParameterKind::Integer(_, cell) | ParameterKind::Bytes(_, cell) => cell(config).get().to_string(),
            ParameterKind::BytesOrPercent(cell) => match cell(config).get() {
                number if number & PERCENT != 0 => format!("{}%", number & !PERCENT),
                number => number.to_string(),
            },
            ParameterKind::OrNever(cell) => match i64::try_from(cell(config).get()) {
                Ok(number) => number.to_string(),
                Err(_) => "-1".to_owned(),
            },
            ParameterKind::Word(words, cell) => {
                words.split('|').nth(cell(config).get_usize()).unwrap_or_default().to_owned()
            }
            ParameterKind::Words(words, cell) => {
                let set = cell(config).get();
                let words = words.split('|').enumerate().filter(|(at, _)| set & (1 << at) != 0);
                words.map(|(_, word)| word).collect::<Vec<_>>().join(" ")
            }
            ParameterKind::Events(cell) => {
                notifications::show_classes(u32::try_from(cell(config).get()).unwrap_or_default())
            }
            ParameterKind::Address(_, cell) => match cell(config).get() {
                Some(address) => address.to_string(),
                None => "off".to_owned(),
            },
            ParameterKind::OutputLimits(cell) => {
                let line = |(class, limit): (&str, &OutputLimit)| {
                    format!("{class} {} {} {}", limit.hard.get(), limit.soft.get(), limit.soft_seconds.get())
                };
                cell(config).classes().map(line).join(" ")
            }
            ParameterKind::Dir(cell) | ParameterKind::File(cell) => match cell(config).get() {
                Some(path) => path.display().to_string(),
                None => "none".to_owned(),
            },
            ParameterKind::Secret(cell) => cell(config).get(),
            ParameterKind::Addresses(cell) => match &*cell(config).get() {
                [] => "none".to_owned(),
                addresses => addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(","),
            },
            ParameterKind::Ratio(cell) => f64::from_bits(cell(config).get()).to_string(),
            ParameterKind::Text(_, cell) => cell(config).get(),
            ParameterKind::Names(_, cell) => match cell(config).get() {
                names if names.is_empty() => "none".to_owned(),
                names => names.join(" "),
            },
        }
    }

    /// What is expected, for people.
    pub fn expected(&self) -> String {
        match self {
            ParameterKind::Integer(range, _) if *range.end() == i64::MAX => {
                format!("a whole number of at least {}", range.start())
            }
            ParameterKind::Integer(range, _) => {
                format!("a whole number from {} to {}", range.start(), range.end())
            }
            ParameterKind::Bytes(range, _) if *range.end() == i64::MAX => {
                format!("a size of at least {}, such as 64mb", humane(*range.start()))
            }
            ParameterKind::Bytes(range, _) => {
                format!("a size from {} to {}, such as 64mb", humane(*range.start()), humane(*range.end()))
            }
            ParameterKind::BytesOrPercent(_) => "a size, or a percentage, such as 64mb or 10%".to_owned(),
            ParameterKind::Word(words, _) => words.replace('|', " or "),
            ParameterKind::Words(words, _) => format!("none or any of {}", words.replace('|', ", ")),
            ParameterKind::OrNever(_) => "a whole number of at least -1".to_owned(),
            ParameterKind::Events(_) => "letters of KEg$lshzxetdmnA, such as KEA".to_owned(),
            ParameterKind::Address(off, _) => {
                format!("HOST:PORT with a port up to 65535{}", if *off { ", or off" } else { "" })
            }
            ParameterKind::OutputLimits(_) => {
                "CLASS HARD SOFT SECONDS ..., such as normal 1gb 64mb 60".to_owned()
            }
            ParameterKind::Dir(_) => "a directory or none".to_owned(),
            ParameterKind::File(_) => "a file or none".to_owned(),
            ParameterKind::Secret(_) => "a text".to_owned(),
            ParameterKind::Addresses(_) => "HOST:PORT,HOST:PORT,... or none".to_owned(),
            ParameterKind::Names(sort, _) => {
                format!("none, * or {}, such as {}", sort.word(), sort.example())
            }
            ParameterKind::Ratio(_) => "a number from 0 to 1, such as 0.01".to_owned(),
            ParameterKind::Text(Form::Url, _) => "http[s]://HOST[:PORT][/PATH] or none".to_owned(),
            ParameterKind::Text(Form::Word, _) => "a word".to_owned(),
            ParameterKind::Text(Form::User, _) => "a word or nothing".to_owned(),
            ParameterKind::Text(Form::Primary, _) => "HOST PORT or nothing".to_owned(),
            ParameterKind::Text(Form::Percentiles, _) => {
                "numbers from 0 to 100, such as 50 99 99.9".to_owned()
            }
        }
    }

    /// What stands for a value in usage lines.
    pub fn metavar(&self) -> &'static str {
        match self {
            ParameterKind::Integer(..) | ParameterKind::OrNever(_) => "N",
            ParameterKind::Bytes(..) => "BYTES",
            ParameterKind::BytesOrPercent(_) => "BYTES|PERCENT%",
            ParameterKind::Word(words, _) if words.len() > 40 => "WORD",
            ParameterKind::Word(words, _) => words,
            ParameterKind::Words(..) => "FLAGS",
            ParameterKind::Events(_) => "LETTERS",
            ParameterKind::Address(false, _) => "ADDR",
            ParameterKind::Address(true, _) => "ADDR|off",
            ParameterKind::OutputLimits(_) => "LIMITS",
            ParameterKind::Dir(_) => "DIR",
            ParameterKind::File(_) => "FILE",
            ParameterKind::Secret(_) => "TEXT",
            ParameterKind::Addresses(_) => "ADDR,...",
            ParameterKind::Names(..) => "NAMES",
            ParameterKind::Ratio(_) => "RATIO",
            ParameterKind::Text(Form::Url, _) => "URL",
            ParameterKind::Text(Form::Word | Form::User, _) => "WORD",
            ParameterKind::Text(Form::Primary, _) => "HOST PORT",
            ParameterKind::Text(Form::Percentiles, _) => "N ...",
        }
    }
}

fn within(range: &RangeInclusive<i64>, number: i64) -> Result<ParsedValue, InvalidValue> {
    match u64::try_from(number) {
        Ok(value) if range.contains(&number) => Ok(ParsedValue::Number(value)),
        _ => Err(InvalidValue::range(range)),
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
fn output_limits(text: &str) -> Result<ParsedValue, InvalidValue> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let wrong_count = || InvalidValue("Wrong number of arguments in buffer limit configuration.".to_owned());
    if !words.len().is_multiple_of(4) {
        return Err(wrong_count());
    }
    let mut limits = Vec::new();
    for group in words.chunks_exact(4) {
        let known = OutputLimits::default().classes().map(|(class, _)| class);
        let Some(class) = known.into_iter().find(|class| group[0].eq_ignore_ascii_case(class)) else {
            return Err(InvalidValue(
                "Invalid client class specified in buffer limit configuration.".to_owned(),
            ));
        };
        let seconds = integer(group[3]).filter(|seconds| (0..=i64::from(i32::MAX)).contains(seconds));
        match (bytes(group[1]), bytes(group[2]), seconds) {
            (Some(hard), Some(soft), Some(seconds)) => {
                limits.push((class, [hard, soft, seconds].map(i64::unsigned_abs)));
            }
            _ => {
                let text = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
                return Err(InvalidValue(text.to_owned()));
            }
        }
    }
    if limits.is_empty() { Err(wrong_count()) } else { Ok(ParsedValue::OutputLimits(limits)) }
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
