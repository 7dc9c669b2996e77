use super::*;

fn paths(text: &str) -> Vec<String> {
    Code::new(text).paths().into_iter().map(|(_, path)| path).filter(|path| path.contains("::")).collect()
}

#[test]
fn comments_strings_and_chars_say_nothing() {
    let text = r##"let a = "std::fs"; // std::fs
        /* std::fs /* std::fs */ std::fs */ let b = r#"std"::fs"#; let c: &'static str = '"'; std::net::x;"##;
    assert_eq!(paths(text), ["std::net::x"]);
}

#[test]
fn use_trees_are_spread_out() {
    let text = "use std::{fs, io::{self, Read as R}, time::Instant};\nfn f() { std::thread::spawn(x::y) }";
    assert_eq!(
        paths(text),
        ["std::fs", "std::io::self", "std::io::Read", "std::time::Instant", "std::thread::spawn", "x::y"]
    );
    let lines: Vec<_> = Code::new(text).paths().into_iter().filter(|(_, path)| path == "x::y").collect();
    assert_eq!(lines[0].0, 2);
}

#[test]
fn what_is_for_tests_is_left_out() {
    let text = "a::b();\n#[cfg(test)]\nmod tests { use c::d; fn e() { f::g() } }\n#[cfg(test)]\nuse h::{i, j};\n\
                #[cfg(all(test, unix))] #[path = \"x\"] mod exam;\n#[cfg(not(test))] fn k() { l::m() }";
    assert_eq!(paths(text), ["a::b", "l::m"]);
    assert_eq!(Code::new(text).test_modules, ["exam"]);
}
