//! Makes cargo look at the web console and the book, whose files the binary contains, when they change.

fn main() {
    println!("cargo:rerun-if-changed=../web-console/dist");
    println!("cargo:rerun-if-changed=../docs/dist");
}
