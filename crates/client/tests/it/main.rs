//! One binary for all of them: each would build the code under test anew.

mod behind;
mod common;
mod copies;
mod durability;
mod early;
mod faults;
mod files;
mod gone;
mod leases;
mod locks;
mod lost;
mod messages;
mod model;
mod moves;
mod opens;
mod opens_ahead;
mod paths;
mod promises;
mod regions;
mod seal;
mod several;
mod shared;
mod snapshots;
mod streams;
