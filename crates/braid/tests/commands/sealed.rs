//! Sealed files, by command and by mounts.

use super::two_mounts::Two;
use super::{Cluster, pattern, tree};
use std::fs;

#[test]
fn seal_and_unseal_say_what_they_did_and_what_is_in_the_way() {
    let c = Cluster::start();
    let local = tempfile::tempdir().unwrap();
    tree(local.path());
    c.says(&format!("fs put -r {} /t", local.path().display()));
    assert_eq!(c.says("fs seal /t/small"), "");
    assert!(c.says("fs stat /t/small").contains(", sealed\n"));
    let json: serde_json::Value = serde_json::from_str(&c.says("fs stat --json /t/small")).unwrap();
    assert_eq!(json["sealed"], true);
    let refused = c.fails("fs rm /t/small");
    assert!(refused.contains("/t/small") && refused.contains("sealed") && refused.contains("(B128)"), "{refused}");
    assert!(c.fails("fs chmod 600 /t/small").contains("(B128)"));
    assert!(c.fails("fs mv /t/small /t/other").contains("(B128)"));
    assert!(c.fails("fs ln /t/small /t/other").contains("(B128)"));
    let put = c.fails(&format!("fs put -f {} /t/small", local.path().join("d/e/large").display()));
    assert!(put.contains("small") && put.contains("(B128)"), "{put}");
    assert_eq!(c.bytes("fs cat /t/small"), b"hello\n");
    // A whole tree: what is no file is passed over, and one file that is sealed already is no error.
    assert!(c.fails("fs seal /t").contains("-r"));
    let lines = c.says("fs seal -r --json /t");
    assert_eq!(lines.lines().count(), 3, "{lines}");
    let left = c.run("fs rm -r /t");
    assert_eq!((left.code, left.err.matches("(B128)").count() >= 1), (1, true), "{}", left.err);
    assert_eq!(c.bytes("fs cat /t/d/e/large"), pattern(3_000_001));
    assert!(c.says("admin fsck").starts_with("clean: "));
    c.says("fs unseal -r /t");
    c.says("fs rm -r /t");
    assert!(c.fails("fs seal /absent").contains("/absent"));
    assert!(c.fails("fs seal /").contains("directory"));
}

/// Cycles of it through two mounts: what was written before is what is read, by both, and nothing is written then.
#[test]
fn a_file_that_is_sealed_and_unsealed_reads_as_it_was_written_last() {
    let Some(two) = Two::new() else { return };
    for len in [900, 300_000] {
        let [here, there] = [0, 1].map(|at: usize| two.at[at].join(format!("f{len}")));
        for round in 0..4usize {
            let mut bytes = pattern(len);
            bytes[round] ^= 0xff;
            let (writer, other) = if round % 2 == 0 { (&here, &there) } else { (&there, &here) };
            fs::write(writer, &bytes).unwrap();
            two.c.says(&format!("fs seal /f{len}"));
            for path in [other, writer] {
                assert!(fs::read(path).unwrap() == bytes, "{len} bytes, round {round}");
                assert_eq!(fs::write(path, b"new").unwrap_err().raw_os_error(), Some(libc::EPERM));
                assert_eq!(fs::remove_file(path).unwrap_err().raw_os_error(), Some(libc::EPERM));
            }
            two.c.says(&format!("fs unseal /f{len}"));
        }
        fs::remove_file(&here).unwrap();
    }
}
