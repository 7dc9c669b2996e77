use crate::world::{on_mount, with_world};
use braid_front_fuse::{MountConfig, mount};
use braid_model::Model;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn is_mounted(path: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|meta| meta.dev()).ok();
    device(path) != path.parent().and_then(device)
}

#[test]
fn a_mount_ends_while_it_is_used_and_can_be_made_again() {
    // Only for the check of root and /dev/fuse, the runtime and the time limit.
    on_mount(|w| {
        let here = tempfile::tempdir().unwrap();
        let model = Arc::new(Model::default());
        let again = || mount(model.clone(), w.runtime.handle().clone(), here.path(), &MountConfig::default()).unwrap();
        let mut first = again();
        assert!(is_mounted(here.path()));
        fs::write(here.path().join("f"), b"kept").unwrap();
        let open = fs::File::open(here.path().join("f")).unwrap();
        first.unmount().unwrap();
        assert!(!is_mounted(here.path()));
        assert_eq!(std::io::read_to_string(&open).unwrap(), "kept", "who has it open still reads");
        drop(open);
        first.join();
        let second = again();
        assert_eq!(fs::read(here.path().join("f")).unwrap(), b"kept");
        drop(second);
        assert!(!is_mounted(here.path()));
    });
}

#[test]
fn a_read_only_mount_refuses_writes() {
    let config = MountConfig { read_only: true, ..MountConfig::default() };
    with_world(config, Duration::from_secs(1), |w| {
        assert_eq!(fs::write(w.path("f"), b"").unwrap_err().raw_os_error(), Some(libc::EROFS));
    });
}

#[test]
fn what_happens_is_counted() {
    on_mount(|w| {
        let _ = fs::read(w.path("missing"));
        assert!(rustix::fs::getxattr(&w.dir, "user.none", &mut [0; 8]).is_err());
        let stats = w.mounted.stats();
        assert!(stats.requests.load(Ordering::Relaxed) >= 2 && stats.errors.load(Ordering::Relaxed) >= 1);
    });
}
