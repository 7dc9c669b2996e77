mod explore;
mod single;
