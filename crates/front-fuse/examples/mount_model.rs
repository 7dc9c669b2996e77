//! Mounts the model file system, for work on the door: `mount_model DIR`, until it is unmounted or gets SIGTERM.

use braid_env::Env;
use braid_front_fuse::{MountConfig, mount};
use braid_model::{Clock, Model};
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let path = std::env::args_os().nth(1).ok_or("usage: mount_model DIR")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let clock = Env::os().clock;
    let model = Arc::new(Model::new(Clock::outside(move || clock.wall())));
    let mut mounted = mount(model, runtime.handle().clone(), path, &MountConfig::default())?;
    println!("mounted at {}", mounted.mount_point().display());
    runtime.block_on(async {
        let mut term = signal(SignalKind::terminate())?;
        tokio::select! {
            _ = term.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        std::io::Result::Ok(())
    })?;
    mounted.unmount()?;
    Ok(())
}
