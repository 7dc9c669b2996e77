use super::*;

fn acl(entries: &[(Who, u16)]) -> Acl {
    Acl::new(entries.iter().map(|&(who, allowed)| Entry { who, allowed }).collect()).unwrap()
}

fn named() -> Acl {
    acl(&[(Who::Owner, 7), (Who::User(1000), 6), (Who::OwningGroup, 5), (Who::Mask, 6), (Who::Others, 4)])
}

#[test]
fn a_list_reads_back_what_it_writes() {
    let bytes = named().to_bytes();
    assert_eq!(bytes.len(), 4 + 5 * 8);
    assert_eq!(bytes[..12], [2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255]);
    assert_eq!(Acl::parse(&bytes), Ok(Some(named())));
    assert_eq!(Acl::parse(&[2, 0, 0, 0]), Ok(None));
}

#[test]
fn what_is_no_list_is_refused() {
    assert_eq!(Acl::parse(b""), Err(AclError::Length));
    assert_eq!(Acl::parse(&[3, 0, 0, 0]), Err(AclError::Version));
    assert_eq!(Acl::parse(&[2, 0, 0, 0, 1]), Err(AclError::Length));
    let mut bytes = named().to_bytes();
    bytes[6] = 8;
    assert_eq!(Acl::parse(&bytes), Err(AclError::Entry));
    let mut bytes = named().to_bytes();
    bytes[4] = 0x40;
    assert_eq!(Acl::parse(&bytes), Err(AclError::Entry));
    let order = |entries: &[Who]| Acl::new(entries.iter().map(|&who| Entry { who, allowed: 0 }).collect());
    assert_eq!(order(&[Who::Owner, Who::Others, Who::OwningGroup]), Err(AclError::Order));
    assert_eq!(order(&[Who::Owner, Who::Owner, Who::OwningGroup, Who::Others]), Err(AclError::Order));
    assert_eq!(order(&[Who::Owner, Who::User(1), Who::OwningGroup, Who::Others]), Err(AclError::Order));
    assert_eq!(order(&[Who::Owner, Who::Others]), Err(AclError::Order));
    assert!(order(&[Who::Owner, Who::User(2), Who::User(1), Who::OwningGroup, Who::Mask, Who::Others]).is_ok());
}

#[test]
fn the_group_bits_show_the_mask() {
    assert_eq!(named().permissions(), 0o764);
    let (mode, kept) = set_access(&named().to_bytes(), Mode(0o2000)).unwrap();
    assert_eq!((mode, kept), (Mode(0o2764), Some(named())));
}

#[test]
fn a_list_that_says_no_more_than_the_mode_is_not_kept() {
    let minimal = acl(&[(Who::Owner, 6), (Who::OwningGroup, 4), (Who::Others, 0)]);
    assert_eq!(set_access(&minimal.to_bytes(), Mode(0o777)), Ok((Mode(0o640), None)));
}

#[test]
fn chmod_moves_the_mask_and_not_the_group() {
    let changed = chmod(&named().to_bytes(), Mode(0o410)).unwrap().unwrap();
    assert_eq!(changed.permissions(), 0o410);
    assert_eq!(changed.entries()[2], Entry { who: Who::OwningGroup, allowed: 5 });
    assert_eq!(changed.entries()[3], Entry { who: Who::Mask, allowed: 1 });
}

#[test]
fn the_umask_counts_only_without_a_default_list() {
    assert_eq!(inherit(None, Mode(0o4777), 0o027, false).mode, Mode(0o4750));
    let inherited = inherit(Some(&named()), Mode(0o666), 0o077, false);
    assert_eq!(inherited.mode, Mode(0o664));
    assert_eq!(inherited.default, None);
    assert_eq!(inherited.access.unwrap().permissions(), 0o664);
    let inherited = inherit(Some(&named()), Mode(0o2755), 0, true);
    assert_eq!((inherited.mode, inherited.default), (Mode(0o2744), Some(named())));
    let minimal = acl(&[(Who::Owner, 7), (Who::OwningGroup, 5), (Who::Others, 0)]);
    assert_eq!(inherit(Some(&minimal), Mode(0o777), 0o777, false).access, None);
}
