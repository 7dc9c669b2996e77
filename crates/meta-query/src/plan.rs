//! Which way into a table a query allows. Pure.

/// How a column is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Equal,
    Glob,
    Like,
    Other,
}

/// A way into a table: these columns are compared so, and then about so many rows are read.
pub struct Way {
    pub needs: &'static [(usize, Op)],
    pub rows: f64,
    /// Nothing else looks at what the columns are compared with: it is an argument, and without it there is no such table.
    pub is_argument: bool,
}

impl Way {
    pub const fn new(needs: &'static [(usize, Op)], rows: f64) -> Way {
        Way { needs, rows, is_argument: false }
    }
}

/// One comparison in a query.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    pub column: usize,
    pub op: Op,
    /// What it is compared with is known when the table is read.
    pub is_usable: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Plan {
    All,
    /// The way's number, and which comparisons give its arguments.
    By(usize, Vec<usize>),
    /// Not in this order of tables.
    Impossible,
}

pub fn choose(ways: &[Way], comparisons: &[Comparison]) -> Plan {
    let find = |need: &(usize, Op)| {
        let fits = |c: &Comparison| c.is_usable && (c.column, c.op) == *need;
        comparisons.iter().position(fits)
    };
    for (number, way) in ways.iter().enumerate() {
        let found: Option<Vec<usize>> = way.needs.iter().map(find).collect();
        match found {
            Some(args) => return Plan::By(number, args),
            None if way.is_argument => {
                let is_there = |(column, _): &(usize, Op)| comparisons.iter().any(|c| c.column == *column);
                if way.needs.iter().any(is_there) {
                    return Plan::Impossible;
                }
            }
            None => {}
        }
    }
    Plan::All
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAYS: &[Way] = &[
        Way { is_argument: true, ..Way::new(&[(9, Op::Equal)], 100.0) },
        Way::new(&[(0, Op::Equal)], 1.0),
        Way::new(&[(1, Op::Equal), (2, Op::Equal)], 1.0),
        Way::new(&[(1, Op::Equal)], 10.0),
    ];

    fn plan(comparisons: &[(usize, Op, bool)]) -> Plan {
        let of = |(column, op, is_usable): &(usize, Op, bool)| Comparison {
            column: *column,
            op: *op,
            is_usable: *is_usable,
        };
        choose(WAYS, &comparisons.iter().map(of).collect::<Vec<_>>())
    }

    #[test]
    fn the_first_way_whose_comparisons_are_there_is_taken() {
        use Op::*;
        assert_eq!(plan(&[]), Plan::All);
        assert_eq!(plan(&[(0, Other, true), (1, Glob, true)]), Plan::All);
        assert_eq!(plan(&[(2, Equal, true), (1, Equal, true)]), Plan::By(2, vec![1, 0]));
        assert_eq!(plan(&[(2, Equal, false), (1, Equal, true)]), Plan::By(3, vec![1]));
        assert_eq!(plan(&[(0, Equal, true), (1, Equal, true)]), Plan::By(1, vec![0]));
    }

    #[test]
    fn an_argument_is_taken_before_all_or_not_at_all() {
        use Op::*;
        assert_eq!(plan(&[(0, Equal, true), (9, Equal, true)]), Plan::By(0, vec![1]));
        assert_eq!(plan(&[(0, Equal, true), (9, Equal, false)]), Plan::Impossible);
        assert_eq!(plan(&[(9, Like, true)]), Plan::Impossible);
    }
}
