//! What people and scripts read.

use super::world::{ROOT, World};
use crate::admin::fsck::finding::Fault;
use std::collections::BTreeSet;

#[test]
fn codes_are_different() {
    let codes: BTreeSet<&str> = Fault::ALL.iter().map(|f| f.code()).collect();
    assert_eq!(codes.len(), Fault::ALL.len());
}

#[tokio::test]
async fn a_finding_is_one_line_and_says_what_a_repair_does() {
    let w = World::new().await;
    w.damage(ROOT, |inode| inode.size = 5).await;
    let report = w.finds(&["F212"]).await;
    let text = report.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "F212 /: its row counts 5 entries and 3 links, there are 1 and 3; --repair sets what the row counts to what \
         there is"
    );
    assert!(lines[1].starts_with("1 fault: 6 inodes, 5 names, 3 chunk rows,"), "{}", lines[1]);
    let json = serde_json::to_value(report.json()).unwrap();
    assert_eq!((&json["clean"], &json["findings"][0]["code"]), (&false.into(), &"F212".into()));
    let repaired = w.check(true).await;
    assert!(repaired.text().contains("repaired: set the links of inode 4096"), "{}", repaired.text());
    assert!(repaired.text().contains("clean after 1 repair:"));
}
