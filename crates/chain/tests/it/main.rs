//! One binary for all of them: each would build the code under test anew.

mod drain;
mod explore;
mod full;
mod locks;
mod lost;
mod moves;
mod nothing;
mod pauses;
mod placed;
mod planted;
mod repair;
mod world;
