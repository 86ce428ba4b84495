//! Where something is sent over HTTP.

use super::cell::Address;

/// A URL of `http://` or `https://` without query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Whether it is `https://`.
    pub is_secure: bool,
    /// Host and port.
    pub address: Address,
    /// What follows, without a slash at its end.
    pub path: String,
}

impl Url {
    /// Reads one; without a port it has the usual one of its scheme.
    pub fn parse(text: &str) -> Option<Url> {
        let (scheme, rest) = text.split_once("://")?;
        let is_secure = match scheme {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let with_port = || format!("{authority}:{}", usual_port(is_secure));
        let address = Address::parse(authority).or_else(|| Address::parse(&with_port()))?;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:@".contains(&byte);
        let path = path.trim_end_matches('/').to_owned();
        path.bytes().all(fits).then_some(Url { is_secure, address, path })
    }

    /// `HOST:PORT`, or `HOST` with the usual port, as the header `Host` has it.
    pub fn authority(&self) -> String {
        let text = self.address.to_string();
        let usual = format!(":{}", usual_port(self.is_secure));
        text.strip_suffix(&usual).map_or_else(|| text.clone(), str::to_owned)
    }
}

fn usual_port(is_secure: bool) -> u16 {
    if is_secure { 443 } else { 80 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_hosts_ports_and_paths() {
        for (text, is_secure, address, authority, path) in [
            ("http://collector:4317", false, "collector:4317", "collector:4317", ""),
            ("http://collector:4318/", false, "collector:4318", "collector:4318", ""),
            ("https://example.com", true, "example.com:443", "example.com", ""),
            ("https://example.com:443/otlp/", true, "example.com:443", "example.com", "/otlp"),
            ("https://example.com:80/a/b", true, "example.com:80", "example.com:80", "/a/b"),
            ("http://[::1]/x", false, "[::1]:80", "[::1]", "/x"),
        ] {
            let url = Url::parse(text).expect(text);
            assert_eq!((url.is_secure, &*url.address.to_string()), (is_secure, address), "{text}");
            assert_eq!((&*url.authority(), &*url.path), (authority, path), "{text}");
        }
        for text in [
            "collector:4317",
            "ftp://collector:21",
            "http://",
            "http:///x",
            "http://collector:",
            "http://collector:65536",
            "http://user@collector",
            "http://collector/x?y",
            "http://collector/a b",
            "http://::1",
        ] {
            assert_eq!(Url::parse(text), None, "{text}");
        }
    }
}
