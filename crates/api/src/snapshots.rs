//! Where snapshots are shown: below a directory that has some, `.braid/snapshots/NAME` is the directory as it was.

use braid_types::Name;

/// From the directory: its snapshots. The first name is in no listing, as long as nobody made a directory of that name; then the second is
/// not.
pub const PLACE: [&str; 2] = [".braid", "snapshots"];

/// That a listing lacks the name does not say that nothing is under it.
pub fn is_unlisted(name: &Name) -> bool {
    PLACE.iter().any(|text| name.as_bytes() == text.as_bytes())
}
