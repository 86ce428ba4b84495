//! Which places are in a circle or rectangle.

use super::{GEO, position, reply_distance, reply_position, unit};
use crate::ctx::Expiry;
use crate::error::{self, CommandError};
use crate::geo::{self, Area, Position, Shape};
use crate::spec::{Access, Arity, Command, KeyPart, flags};
use crate::value::ZSet;
use crate::{Args, Ctx, Cursor, Reply, Value, Work, number};

/// The rows of this chapter.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "georadius",
        arity: Arity::AtLeast(6),
        keys: &[
            KeyPart::one(1, Access::Read),
            KeyPart::After { word: "STORE", from: 6, access: Access::Write },
            KeyPart::After { word: "STOREDIST", from: 6, access: Access::Write },
        ],
        summary: "Returns or stores the locations inside a circle around a location.",
        syntax: "key longitude:double latitude:double radius:double unit(M | KM | FT | MI) WITHCOORD? WITHDIST? WITHHASH? count(COUNT=count:int ANY@6.2.0?)? order(ASC | DESC)? STORE=key? STOREDIST=key?",
        run: |ctx, args| search(ctx, args, SearchForm::Around { stores: true }),
        ..STORES
    },
    Command {
        name: "georadius_ro",
        since: "3.2.10",
        arity: Arity::AtLeast(6),
        summary: "Returns the locations inside a circle around a location.",
        syntax: "key longitude:double latitude:double radius:double unit(M | KM | FT | MI) WITHCOORD? WITHDIST? WITHHASH? count(COUNT=count:int ANY@6.2.0?)? order(ASC | DESC)?",
        run: |ctx, args| search(ctx, args, SearchForm::Around { stores: false }),
        ..SEARCHES
    },
    Command {
        name: "georadiusbymember",
        arity: Arity::AtLeast(5),
        keys: &[
            KeyPart::one(1, Access::Read),
            KeyPart::After { word: "STORE", from: 5, access: Access::Write },
            KeyPart::After { word: "STOREDIST", from: 5, access: Access::Write },
        ],
        summary: "Returns or stores the locations inside a circle around a member.",
        syntax: "key member radius:double unit(M | KM | FT | MI) WITHCOORD? WITHDIST? WITHHASH? count(COUNT=count:int ANY?)? order(ASC | DESC)? STORE=key? STOREDIST=key?",
        run: |ctx, args| search(ctx, args, SearchForm::AroundMember { stores: true }),
        ..STORES
    },
    Command {
        name: "georadiusbymember_ro",
        since: "3.2.10",
        arity: Arity::AtLeast(5),
        summary: "Returns the locations inside a circle around a member.",
        syntax: "key member radius:double unit(M | KM | FT | MI) WITHCOORD? WITHDIST? WITHHASH? count(COUNT=count:int ANY?)? order(ASC | DESC)?",
        run: |ctx, args| search(ctx, args, SearchForm::AroundMember { stores: false }),
        ..SEARCHES
    },
    Command {
        name: "geosearch",
        since: "6.2.0",
        arity: Arity::AtLeast(7),
        summary: "Returns the locations inside a circle or rectangle.",
        syntax: "key from(FROMMEMBER=member | FROMLONLAT=longitude_latitude(longitude:double latitude:double)) by(circle(BYRADIUS=radius:double unit(M | KM | FT | MI)) | box(BYBOX=width:double height:double unit(M | KM | FT | MI))) order(ASC | DESC)? count(COUNT=count:int ANY?)? WITHCOORD? WITHDIST? WITHHASH?",
        run: |ctx, args| search(ctx, args, SearchForm::Free { stores: false }),
        ..SEARCHES
    },
    Command {
        name: "geosearchstore",
        since: "6.2.0",
        arity: Arity::AtLeast(8),
        keys: &[KeyPart::one(1, Access::Write), KeyPart::one(2, Access::Read)],
        flags: flags::DENY_OOM,
        summary: "Stores the locations inside a circle or rectangle.",
        syntax: "destination:key source:key from(FROMMEMBER=member | FROMLONLAT=longitude_latitude(longitude:double latitude:double)) by(circle(BYRADIUS=radius:double unit(M | KM | FT | MI)) | box(BYBOX=width:double height:double unit(M | KM | FT | MI))) order(ASC | DESC)? count(COUNT=count:int ANY?)? STOREDIST?",
        run: |ctx, args| search(ctx, args, SearchForm::Free { stores: true }),
        ..STORES
    },
];

const SEARCHES: Command = Command {
    complexity: "O(N+log(M)) where N is the number of places in and around the area, and M of all.",
    ..GEO
};
const STORES: Command =
    Command { access: Access::Write, flags: flags::DENY_OOM | flags::MOVABLE_KEYS, ..SEARCHES };

/// How a call names the area, and whether it may store what it finds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SearchForm {
    /// Longitude, latitude and radius come first.
    Around { stores: bool },
    /// Member and radius come first.
    AroundMember { stores: bool },
    /// All of it is options; the destination comes first, if there is one.
    Free { stores: bool },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SortOrder {
    Nearest,
    Farthest,
}

/// What a call asks for. Metres are those of its unit.
#[derive(Default)]
struct SearchOptions<'a> {
    center: Option<Position>,
    center_is_member: bool,
    shape: Option<Shape>,
    metres: f64,
    with_distance: bool,
    with_number: bool,
    with_coord: bool,
    order: Option<SortOrder>,
    count: Option<usize>,
    any: bool,
    store: Option<&'a [u8]>,
    store_distance: bool,
}

/// A place that was found.
struct Match {
    member: Box<[u8]>,
    score: f64,
    position: Position,
    distance: f64,
}

fn measure(text: &[u8], what: &'static str) -> Result<f64, CommandError> {
    number::parse_f64(text).ok_or(CommandError::new(what))
}

/// A radius with its unit.
fn circle(words: &mut Cursor<'_>) -> Result<(Shape, f64), CommandError> {
    let radius = measure(words.bytes()?, "ERR need numeric radius")?;
    if radius < 0.0 {
        return Err(CommandError::new("ERR radius cannot be negative"));
    }
    let metres = unit(words.bytes()?)?;
    Ok((Shape::Circle(radius * metres), metres))
}

/// Width and height with their unit.
fn rectangle(words: &mut Cursor<'_>) -> Result<(Shape, f64), CommandError> {
    let width = measure(words.bytes()?, "ERR need numeric width")?;
    let height = measure(words.bytes()?, "ERR need numeric height")?;
    if width < 0.0 || height < 0.0 {
        return Err(CommandError::new("ERR height or width cannot be negative"));
    }
    let metres = unit(words.bytes()?)?;
    Ok((Shape::Rectangle(width * metres, height * metres), metres))
}

/// Where a member is. Of a missing key nobody asks.
fn position_of_member(zset: Option<&ZSet>, member: &[u8]) -> Result<Position, CommandError> {
    let Some(zset) = zset else { return Ok(Position::default()) };
    let score = zset.score(member);
    score.map(geo::position_of).ok_or(CommandError::new("ERR could not decode requested zset member"))
}

impl<'a> SearchOptions<'a> {
    fn parse(
        zset: Option<&ZSet>,
        args: Args<'a>,
        form: SearchForm,
    ) -> Result<SearchOptions<'a>, CommandError> {
        let mut options = SearchOptions::default();
        let mut words = args.cursor(2);
        match form {
            SearchForm::Around { .. } => {
                options.center = Some(position(words.bytes()?, words.bytes()?)?);
                options.take_shape(circle(&mut words)?);
            }
            SearchForm::AroundMember { .. } if zset.is_none() => words = args.cursor(5),
            SearchForm::AroundMember { .. } => {
                options.center = Some(position_of_member(zset, words.bytes()?)?);
                options.take_shape(circle(&mut words)?);
            }
            SearchForm::Free { stores } => {
                if stores {
                    options.store = Some(args[1]);
                    words.bytes()?;
                }
            }
        }
        while !words.is_done() {
            options.take(zset, &mut words, form)?;
        }
        options.check(args, form)?;
        Ok(options)
    }

    fn take_shape(&mut self, (shape, metres): (Shape, f64)) {
        (self.shape, self.metres) = (Some(shape), metres);
    }

    /// Takes one option.
    fn take(
        &mut self,
        zset: Option<&ZSet>,
        words: &mut Cursor<'a>,
        form: SearchForm,
    ) -> Result<(), CommandError> {
        // Words behind this one.
        let left = words.remaining() - 1;
        let free = matches!(form, SearchForm::Free { .. });
        let names_key =
            matches!(form, SearchForm::Around { stores: true } | SearchForm::AroundMember { stores: true });
        // Of two words for the same thing the second is none, but the same word may come again.
        let (from_member, from_place) =
            (self.center_is_member, self.center.is_some() && !self.center_is_member);
        if words.flag("withdist") {
            self.with_distance = true;
        } else if words.flag("withhash") {
            self.with_number = true;
        } else if words.flag("withcoord") {
            self.with_coord = true;
        } else if words.flag("any") {
            self.any = true;
        } else if words.flag("asc") {
            self.order = Some(SortOrder::Nearest);
        } else if words.flag("desc") {
            self.order = Some(SortOrder::Farthest);
        } else if left >= 1 && words.flag("count") {
            let count = words.integer()?;
            let count = usize::try_from(count).ok().filter(|count| *count > 0);
            self.count = Some(count.ok_or(CommandError::new("ERR COUNT must be > 0"))?);
        } else if names_key && left >= 1 && words.flag("store") {
            (self.store, self.store_distance) = (Some(words.bytes()?), false);
        } else if names_key && left >= 1 && words.flag("storedist") {
            (self.store, self.store_distance) = (Some(words.bytes()?), true);
        } else if free && left >= 1 && !from_place && words.flag("frommember") {
            self.center = Some(position_of_member(zset, words.bytes()?)?);
            self.center_is_member = true;
        } else if free && left >= 2 && !from_member && words.flag("fromlonlat") {
            self.center = Some(position(words.bytes()?, words.bytes()?)?);
        } else if free
            && left >= 2
            && !matches!(self.shape, Some(Shape::Rectangle(..)))
            && words.flag("byradius")
        {
            self.take_shape(circle(words)?);
        } else if free && left >= 3 && !matches!(self.shape, Some(Shape::Circle(_))) && words.flag("bybox") {
            self.take_shape(rectangle(words)?);
        } else if form == (SearchForm::Free { stores: true }) && words.flag("storedist") {
            self.store_distance = true;
        } else {
            return Err(error::SYNTAX);
        }
        Ok(())
    }

    fn check(&mut self, args: Args<'_>, form: SearchForm) -> Result<(), CommandError> {
        let free = matches!(form, SearchForm::Free { .. });
        if self.store.is_some() && (self.with_distance || self.with_number || self.with_coord) {
            let what = if free { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(CommandError::owned(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        let missing = |what: &str| {
            let name = String::from_utf8_lossy(args.name());
            Err(CommandError::owned(format!("ERR exactly one of {what} can be specified for {name}")))
        };
        if free && self.center.is_none() {
            return missing("FROMMEMBER or FROMLONLAT");
        }
        if free && self.shape.is_none() {
            return missing("BYRADIUS and BYBOX");
        }
        if self.any && self.count.is_none() {
            return Err(CommandError::new("ERR the ANY argument requires COUNT argument"));
        }
        // Whoever wants some and not any wants the nearest.
        if self.count.is_some() && !self.any {
            self.order.get_or_insert(SortOrder::Nearest);
        }
        Ok(())
    }

    /// The places that are wanted, in the order wanted.
    fn found(&self, zset: &ZSet, work: &Work) -> Vec<Match> {
        let mut found = Vec::new();
        let (Some(center), Some(shape)) = (self.center, self.shape) else { return found };
        let area = Area { center, shape };
        let enough = self.count.filter(|_| self.any).unwrap_or(usize::MAX);
        for (from, to) in area.ranges() {
            let from = zset.count_below(from);
            let numbered = zset.iter_from(from).take_while(|(_, score)| *score < to);
            for (member, score) in work.over(numbered) {
                if found.len() >= enough {
                    break;
                }
                let position = geo::position_of(score);
                if let Some(distance) = area.distance_inside(position) {
                    found.push(Match { member: member.into(), score, position, distance });
                }
            }
        }
        match self.order {
            None => {}
            Some(SortOrder::Nearest) => found.sort_by(|a, b| a.distance.total_cmp(&b.distance)),
            Some(SortOrder::Farthest) => found.sort_by(|a, b| b.distance.total_cmp(&a.distance)),
        }
        found.truncate(self.count.unwrap_or(usize::MAX));
        found
    }
}

fn search(ctx: &mut Ctx<'_>, args: Args<'_>, form: SearchForm) -> Result<(), CommandError> {
    let key = args[if form == (SearchForm::Free { stores: true }) { 2 } else { 1 }];
    let work = ctx.work;
    let zset = ctx.read::<ZSet>(key)?;
    let options = SearchOptions::parse(zset, args, form)?;
    let found = zset.map(|zset| options.found(zset, work)).unwrap_or_default();
    let Some(destination) = options.store else {
        options.reply(ctx.out, &found);
        return Ok(());
    };
    let mut stored = ZSet::default();
    for position in &found {
        let score = if options.store_distance { position.distance / options.metres } else { position.score };
        stored.insert(&position.member, score);
    }
    if found.is_empty() {
        ctx.delete(destination);
    } else {
        ctx.put(destination, Value::ZSet(stored), Expiry::Clear);
    }
    ctx.out.count(found.len());
    Ok(())
}

impl SearchOptions<'_> {
    fn reply(&self, out: &mut Reply, found: &[Match]) {
        let more =
            [self.with_distance, self.with_number, self.with_coord].into_iter().filter(|with| *with).count();
        out.array(found.len());
        for Match { member, score, position, distance } in found {
            if more > 0 {
                out.array(1 + more);
            }
            out.bulk(member);
            if self.with_distance {
                reply_distance(out, distance / self.metres);
            }
            if self.with_number {
                out.integer(geo::as_signed(*score));
            }
            if self.with_coord {
                reply_position(out, *position);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Protocol;
    use crate::testing::Bench;

    fn sicily() -> Bench {
        let mut bench = Bench::new();
        bench.run("GEOADD s 13.361389 38.115556 Palermo 15.087269 37.502669 Catania");
        bench.run("GEOADD s 12.758489 38.788135 edge1 17.241510 38.788135 edge2");
        bench
    }

    #[test]
    fn circles_and_rectangles() {
        let mut bench = sicily();
        bench.expect("GEOSEARCH s FROMLONLAT 15 37 BYRADIUS 200 km ASC", "*2 $7 Catania $7 Palermo");
        bench.expect(
            "GEOSEARCH s FROMLONLAT 15 37 BYBOX 400 400 km DESC WITHDIST",
            "*4 *2 $5 edge1 $8 279.7405 *2 $5 edge2 $8 279.7403 *2 $7 Palermo $8 190.4424 *2 $7 Catania $7 56.4413",
        );
        bench.expect("GEORADIUS s 15 37 200 km COUNT 1 WITHHASH", "*1 *2 $7 Catania :3479447370796909");
        bench.expect(
            "GEORADIUSBYMEMBER s Palermo 50 mi WITHCOORD",
            "*1 *2 $7 Palermo *2 $20 13.36138933897018433 $20 38.11555639549629859",
        );
        bench.expect("GEORADIUSBYMEMBER_RO s Palermo 0 m", "*1 $7 Palermo");
        assert!(bench.run("GEOSEARCH s FROMMEMBER Palermo BYRADIUS 9000 km COUNT 3 ANY").starts_with("*3 "));
        bench.protocol = Protocol::Resp3;
        bench.expect("GEOPOS s Palermo", "*1 *2 ,13.36138933897018433 ,38.11555639549629859");
    }

    #[test]
    fn what_is_found_can_be_stored() {
        let mut bench = sicily();
        bench.expect("GEOSEARCHSTORE d s FROMLONLAT 15 37 BYRADIUS 200 km", ":2");
        bench.expect("ZSCORE d Catania", "$16 3479447370796909");
        bench.expect("GEOSEARCHSTORE d s FROMLONLAT 15 37 BYRADIUS 200 km COUNT 1 STOREDIST", ":1");
        bench.expect("ZRANGE d 0 -1", "*1 $7 Catania");
        bench.expect("GEORADIUS s 15 37 200 km STORE x STOREDIST s", ":2");
        bench.expect("EXISTS x", ":0");
        bench.expect("GEORADIUSBYMEMBER s none 1 m", "-ERR could not decode requested zset member");
        bench.expect("GEORADIUSBYMEMBER none a x y STORE s", ":0");
        bench.expect("EXISTS s", ":0");
        bench.check_roll_back(&[
            "GEOSEARCHSTORE d d FROMLONLAT 15 37 BYRADIUS 200 km",
            "GEOSEARCHSTORE n d FROMLONLAT 15 37 BYRADIUS 200 km",
            "GEORADIUS none 1 1 1 m STORE d",
        ]);
    }

    #[test]
    fn what_is_refused() {
        let mut bench = sicily();
        for (rest, wanted) in [
            ("FROMLONLAT 15 37 BYRADIUS 1 x", "unsupported unit provided. please use M, KM, FT, MI"),
            ("FROMLONLAT 15 37 BYRADIUS -1 m", "radius cannot be negative"),
            ("FROMLONLAT 15 37 BYRADIUS x m", "need numeric radius"),
            ("FROMLONLAT 15 37 BYBOX x 1 m", "need numeric width"),
            ("FROMLONLAT 15 37 BYBOX 1 x m", "need numeric height"),
            ("FROMLONLAT 15 37 BYBOX 1 -1 m", "height or width cannot be negative"),
            ("FROMLONLAT 15 37 BYBOX 1 1 m BYRADIUS 1 m", "syntax error"),
            ("FROMLONLAT 15 37 FROMMEMBER Palermo ASC", "syntax error"),
            ("FROMLONLAT 15 37 ASC ASC", "exactly one of BYRADIUS and BYBOX can be specified for GEOSEARCH"),
            (
                "BYRADIUS 15 km ASC ASC",
                "exactly one of FROMMEMBER or FROMLONLAT can be specified for GEOSEARCH",
            ),
            ("FROMMEMBER Palermo BYRADIUS 1 m ANY", "the ANY argument requires COUNT argument"),
            ("FROMMEMBER Palermo BYRADIUS 1 m COUNT 0", "COUNT must be > 0"),
            ("FROMMEMBER Palermo BYRADIUS 1 m STORE d", "syntax error"),
            ("FROMMEMBER nobody BYRADIUS 1 m", "could not decode requested zset member"),
        ] {
            bench.expect(&format!("GEOSEARCH s {rest}"), &format!("-ERR {wanted}"));
        }
        for (line, what) in [
            ("GEOSEARCHSTORE d s FROMMEMBER Palermo BYRADIUS 1 m WITHDIST", "GEOSEARCHSTORE"),
            ("GEORADIUSBYMEMBER s Palermo 1 m STORE d WITHCOORD", "STORE option in GEORADIUS"),
        ] {
            let wanted =
                format!("-ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options");
            bench.expect(line, &wanted);
        }
        bench.expect("GEORADIUS_RO s 15 37 1 m STORE d", "-ERR syntax error");
    }
}
