//! Makes cargo look at the web console, whose files the binary contains, when they change.

fn main() {
    println!("cargo:rerun-if-changed=../web-console/dist");
}
