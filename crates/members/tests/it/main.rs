mod explore;
mod leader;
mod member;
mod process;
mod quiet;
mod roster;
mod world;
