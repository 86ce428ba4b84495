//! The documentation that the server delivers.

use tests::TestServer;

#[test]
fn the_book_is_served_as_it_was_built() {
    let server = TestServer::start(&["--http", "127.0.0.1:0"]);
    let mut http = server.http();
    let moved = http.get("/docs");
    assert_eq!((moved.status, moved.header("location")), (308, "/docs/"));
    let page = http.get("/docs/");
    if page.status == 404 {
        assert_eq!(page.json()["code"], "NOTFOUND", "nothing was built, and the page says how to build it");
        assert!(page.json()["detail"].as_str().is_some_and(|text| text.contains("make docs")));
        return;
    }
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").to_owned();
    assert!(
        policy.contains("script-src 'self' 'sha256-") && policy.contains("default-src 'none'"),
        "{policy}"
    );
    let text = String::from_utf8(page.body.clone()).expect("text");
    let files: Vec<&str> = ["href=\"", "src=\""]
        .iter()
        .flat_map(|start| text.split(*start).skip(1))
        .filter_map(|rest| rest.split('"').next())
        .filter(|link| !link.contains("://") && !link.starts_with('#'))
        .map(|link| link.split('#').next().unwrap_or_default())
        .collect();
    assert!(
        files.iter().any(|file| file.ends_with(".css")) && files.iter().any(|file| file.ends_with(".js"))
    );
    for file in files {
        assert_eq!(http.get(&format!("/docs/{file}")).status, 200, "{file}");
    }
    let lock = http.send("GET", "/docs/recipes/lock.html", &[("Accept-Encoding", "gzip")], b"");
    assert_eq!((lock.status, lock.header("content-encoding")), (200, "gzip"));
    for path in ["/docs/nothing.html", "/docs/../Cargo.toml", "/docs/%2e%2e/book.toml"] {
        let absent = http.get(path);
        assert_eq!(
            (absent.status, absent.header("content-type")),
            (404, "text/html; charset=utf-8"),
            "{path}"
        );
    }
    assert_eq!(http.send("POST", "/docs/", &[("Content-Type", "application/json")], b"{}").status, 405);
}
