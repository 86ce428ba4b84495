//! How a command line names a server, and how it authenticates to it.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, value_parser};
use store_engine::DATABASES;
use tls::{Clients, Files, Roots};

use crate::admin::script::ServerAddress;
use crate::config::Address;

/// The port of a URL without one.
const PORT: u16 = 6379;

const WRONG_URL: &str = "the URL is invalid, expected redis://[USER:PASSWORD@]HOST[:PORT]";

/// What a URL of a server looks like, for help texts.
pub const URL_FORM: &str = "redis://[USER:PASSWORD@]HOST[:PORT], or rediss:// for TLS";

/// The options beside a URL.
pub fn options() -> [Arg; 4] {
    let file = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
    };
    [
        file(
            "password-file",
            "File whose first line is the password [default: the environment variable REDISCLI_AUTH]",
        ),
        file(
            "tls-ca-cert-file",
            "Certificate authorities that the server's certificate must be signed by, for rediss:// [default: those of the system]",
        ),
        file("tls-cert-file", "Client certificate to present").requires("tls-key-file"),
        file("tls-key-file", "Private key of that certificate").requires("tls-cert-file"),
    ]
}

/// The server of a URL and of the options beside it.
pub fn address(url: &str, matches: &ArgMatches) -> Result<ServerAddress, String> {
    let url = Url::parse(url)?.without_database()?;
    needs_tls(&[&url], matches)?;
    url.server(matches, "password-file")
}

/// The servers of two URLs, with the database that the first one names, if any. The options are those of both, except that
/// the file with the password of the second one is the option `password_file`.
pub fn pair(
    urls: [&str; 2],
    matches: &ArgMatches,
    password_file: &str,
) -> Result<(ServerAddress, Option<usize>, ServerAddress), String> {
    let (first, second) = (Url::parse(urls[0])?, Url::parse(urls[1])?.without_database()?);
    needs_tls(&[&first, &second], matches)?;
    let db = first.db;
    Ok((first.server(matches, "password-file")?, db, second.server(matches, password_file)?))
}

/// Certificate authorities are of use only if one of these URLs is of TLS.
fn needs_tls(urls: &[&Url], matches: &ArgMatches) -> Result<(), String> {
    match matches.contains_id("tls-ca-cert-file") && !urls.iter().any(|url| url.is_tls) {
        true => Err("--tls-ca-cert-file requires a rediss:// URL".to_owned()),
        false => Ok(()),
    }
}

struct Url {
    is_tls: bool,
    user: Option<String>,
    password: Option<String>,
    address: Address,
    db: Option<usize>,
}

impl Url {
    /// The text is not repeated in errors, since it may have a password.
    fn parse(text: &str) -> Result<Url, String> {
        let wrong = || WRONG_URL.to_owned();
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let is_tls = match scheme {
            "redis" => false,
            "rediss" => true,
            _ => return Err(wrong()),
        };
        let (rest, db) = match rest.rsplit_once('/') {
            Some((rest, "")) => (rest, None),
            Some((rest, db)) if !db.contains('@') => {
                let db = db.parse().ok().filter(|db| *db < DATABASES);
                (rest, Some(db.ok_or_else(wrong)?))
            }
            _ => (rest, None),
        };
        let (login, place) =
            rest.rsplit_once('@').map_or((None, rest), |(login, place)| (Some(login), place));
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            None => (None, None),
            Some((user, password)) => {
                let (user, password) =
                    (decoded(user).ok_or_else(wrong)?, decoded(password).ok_or_else(wrong)?);
                (Some(user).filter(|user| !user.is_empty()), Some(password).filter(|text| !text.is_empty()))
            }
        };
        let has_port = place.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let place = if has_port { place.to_owned() } else { format!("{place}:{PORT}") };
        Ok(Url { is_tls, user, password, address: Address::parse(&place).ok_or_else(wrong)?, db })
    }

    fn without_database(self) -> Result<Url, String> {
        if self.db.is_some() { Err(WRONG_URL.to_owned()) } else { Ok(self) }
    }

    /// The server, with the password in the file that the option `password_file` names.
    fn server(self, matches: &ArgMatches, password_file: &str) -> Result<ServerAddress, String> {
        let file = |name| matches.get_one::<PathBuf>(name).cloned();
        let Url { is_tls, user, password, address, db: _ } = self;
        let tls = match is_tls {
            false => None,
            true => {
                let roots = file("tls-ca-cert-file").map(|file| Ok(Roots::File(file)));
                let roots = roots.unwrap_or_else(Roots::of_system).map_err(|error| error.to_string())?;
                let own = file("tls-cert-file").zip(file("tls-key-file"));
                Some(Files { own, roots: Some(roots), clients: Clients::Anyone })
            }
        };
        Ok(ServerAddress { address, user, password, password_file: file(password_file), tls })
    }
}

/// Without percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_user_password_and_address() {
        let parsed = |text: &str| {
            let url = Url::parse(text).ok()?;
            let db = url.db.map(|db| format!("/{db}")).unwrap_or_default();
            Some(format!("{} {:?} {:?} {}{db}", url.is_tls, url.user, url.password, url.address))
        };
        for (text, wanted) in [
            ("redis://a", Some(r#"false None None a:6379"#)),
            ("redis://a:1/", Some(r#"false None None a:1"#)),
            ("rediss://[::1]", Some(r#"true None None [::1]:6379"#)),
            ("rediss://[::1]:7", Some(r#"true None None [::1]:7"#)),
            ("redis://u:p%40%3a@a:1", Some(r#"false Some("u") Some("p@:") a:1"#)),
            ("redis://:p@a:1", Some(r#"false None Some("p") a:1"#)),
            ("redis://u@a:1", Some(r#"false Some("u") None a:1"#)),
            ("redis://a/3", Some(r#"false None None a:6379/3"#)),
            ("redis://u:p/3@a:1/15", Some(r#"false Some("u") Some("p/3") a:1/15"#)),
            ("redis://u:p/3@a:1", Some(r#"false Some("u") Some("p/3") a:1"#)),
            ("redis://a/16", None),
            ("redis://a/x", None),
            ("redis://u:%4@a:1", None),
            ("http://a:1", None),
            ("redis://", None),
            ("a:1", None),
        ] {
            assert_eq!(parsed(text).as_deref(), wanted, "{text}");
        }
    }
}
