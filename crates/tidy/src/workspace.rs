//! The workspace as the checks see it: parsed manifests and the text of the sources.

use crate::code::Code;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};
use toml::Table;

#[derive(Default)]
pub struct Workspace {
    pub crates: Vec<Crate>,
    /// The manifest of the workspace itself.
    pub manifest: Table,
    /// `ARCHITECTURE.md`, once there is one.
    pub architecture: Option<String>,
    /// `docs/semantics.md`, once there is one.
    pub semantics: Option<String>,
    /// Names of the files in `scripts`.
    pub scripts: Vec<String>,
}

pub struct Crate {
    /// Without `braid-`, as its directory is called.
    pub name: String,
    pub manifest: Table,
    /// All under `src`.
    pub sources: Vec<Source>,
    /// All under `tests`.
    pub tests: Vec<Source>,
}

pub struct Source {
    /// From the crate's directory on: `src/lib.rs`.
    pub path: String,
    pub text: String,
    /// The text without comments, strings and what is compiled for tests alone.
    pub code: Code,
    /// The file as a whole is compiled for tests alone.
    pub is_test: bool,
}

impl Workspace {
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut crates = Vec::new();
        for dir in sorted(&root.join("crates"))?.iter().filter(|dir| dir.join("Cargo.toml").exists()) {
            crates.push(Crate::read(dir)?);
        }
        let architecture = fs::read_to_string(root.join("ARCHITECTURE.md")).ok();
        let semantics = fs::read_to_string(root.join("docs/semantics.md")).ok();
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let scripts = sorted(&root.join("scripts"))?.iter().map(name).collect();
        let manifest = table(&fs::read_to_string(root.join("Cargo.toml"))?)?;
        Ok(Self { crates, manifest, architecture, semantics, scripts })
    }
}

impl Crate {
    /// For planted violations: a crate of one manifest and some files.
    pub fn planted(name: &str, manifest: &str, sources: &[(&str, &str)]) -> Self {
        let sources = sources.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let manifest = table(manifest).unwrap_or_default();
        Self { name: name.to_owned(), manifest, sources: with_tests_marked(sources), tests: Vec::new() }
    }

    fn read(dir: &Path) -> io::Result<Self> {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let manifest = table(&fs::read_to_string(dir.join("Cargo.toml"))?)?;
        let sources = with_tests_marked(texts(dir, "src")?);
        let tests = if dir.join("tests").exists() { texts(dir, "tests")? } else { Vec::new() };
        let as_test = |(path, text): (String, String)| Source { code: Code::new(&text), path, text, is_test: true };
        Ok(Self { name, manifest, sources, tests: tests.into_iter().map(as_test).collect() })
    }

    /// What is not for tests alone.
    pub fn production(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| !source.is_test)
    }

    /// Names of the dependencies in a section of the manifest, and how each is asked for.
    pub fn dependencies(&self, section: &str) -> impl Iterator<Item = (&str, &toml::Value)> {
        let table = self.manifest.get(section).and_then(toml::Value::as_table);
        table.into_iter().flatten().map(|(name, value)| (name.as_str(), value))
    }
}

fn table(text: &str) -> io::Result<Table> {
    text.parse().map_err(io::Error::other)
}

fn sorted(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// The files under a part of a crate: path from the crate's directory on, and text.
fn texts(dir: &Path, part: &str) -> io::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    collect(&dir.join(part), &mut files)?;
    let mut texts = Vec::new();
    for path in files {
        let short = path.strip_prefix(dir).unwrap_or(&path).to_string_lossy().into_owned();
        texts.push((short, fs::read_to_string(&path)?));
    }
    Ok(texts)
}

fn collect(dir: &Path, into: &mut Vec<PathBuf>) -> io::Result<()> {
    for path in sorted(dir)? {
        if path.is_dir() {
            collect(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
    Ok(())
}

/// A file is a test's when a module that says `#[cfg(test)] mod x;` has it, or by its name.
fn with_tests_marked(files: Vec<(String, String)>) -> Vec<Source> {
    let mut test_modules = BTreeSet::new();
    let parsed: Vec<(String, String, Code)> = files
        .into_iter()
        .map(|(path, text)| {
            let code = Code::new(&text);
            test_modules.extend(code.test_modules.iter().map(|module| format!("{}/{module}", module_dir(&path))));
            (path, text, code)
        })
        .collect();
    let is_test = |path: &str| {
        let module = path.trim_end_matches(".rs");
        module.ends_with("tests")
            || module.ends_with("_test")
            || path.contains("/tests/")
            || test_modules.iter().any(|test| module == test || path.starts_with(&format!("{test}/")))
    };
    parsed.into_iter().map(|(path, text, code)| Source { is_test: is_test(&path), path, text, code }).collect()
}

/// Where the modules lie that a file declares.
fn module_dir(path: &str) -> String {
    let module = path.trim_end_matches(".rs");
    match module.rsplit_once('/') {
        Some((dir, "lib" | "main" | "mod")) => dir.to_owned(),
        _ => module.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_tests_are_known() {
        let files = [
            ("src/lib.rs", "#[cfg(test)]\nmod exam;\nmod work;"),
            ("src/exam.rs", ""),
            ("src/exam/deep.rs", ""),
            ("src/work.rs", "#[cfg(test)] mod inside;"),
            ("src/work/inside.rs", ""),
            ("src/work_tests.rs", ""),
        ];
        let planted = Crate::planted("x", "", &files);
        let production: Vec<_> = planted.production().map(|source| source.path.as_str()).collect();
        assert_eq!(production, ["src/lib.rs", "src/work.rs"]);
    }
}
