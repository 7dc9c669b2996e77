//! A specification of how ownership of a chunk moves (docs/design/0014-migration.md), as a model whose every state is looked at.
//!
//! One chunk, two or three servers, a leader, two clients. Rules can be left out one by one ([`rules::Rule`]), and are then found
//! missing. docs/design/0017-migration-specification.md has what is left out of the model and why that is sound, the configurations
//! with their states, and what each rule is needed for.
//!
//! Promises: no I/O, no clock, no randomness; it knows nothing of the rest of BraidFS. That the machine in `braid-chain` does what is
//! specified here is shown by its own explorer and by the simulator, not here.

pub mod invariants;
pub mod messages;
pub mod rules;
pub mod states;
pub mod steps;

use rules::Setup;
use stateright::{Model, Property};
use states::State;
use steps::Action;

/// One configuration, for the checker.
#[derive(Clone, Copy, Debug)]
pub struct Spec(pub Setup);

impl Model for Spec {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(&self.0)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        steps::actions(&self.0, state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        steps::step(&self.0, &mut next, &action).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Spec>> {
        invariants::properties()
    }
}
