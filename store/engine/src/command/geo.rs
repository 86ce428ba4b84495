//! Places: members of sorted sets whose scores are numbers of cells on Earth.

pub mod search;

use crate::error::{self, CommandError};
use crate::geo::{self, Position};
use crate::number;
use crate::spec::{Access, Arity, Command, Group, KeyPart, flags};
use crate::value::ZSet;
use crate::{Args, Ctx, Reply};

/// The rows of this family.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "geoadd",
        arity: Arity::AtLeast(5),
        keys: KeyPart::FIRST_WRITE,
        access: Access::Write,
        flags: flags::DENY_OOM,
        summary: "Adds locations to a sorted set or updates them. The key is created if it doesn't exist.",
        complexity: "O(log(N)) for each location, where N is the number of locations.",
        syntax: "key condition(NX | XX)@6.2.0? CH!change@6.2.0? longitude_latitude_member(longitude:double latitude:double member)...",
        run: add,
        ..GEO
    },
    Command {
        name: "geodist",
        arity: Arity::AtLeast(4),
        summary: "Returns the distance between two locations.",
        complexity: "O(1)",
        syntax: "key member1 member2 unit(M | KM | FT | MI)?",
        run: distance,
        ..GEO
    },
    Command {
        name: "geohash",
        summary: "Returns the geohashes of locations.",
        complexity: "O(1) for each place.",
        syntax: "key member...",
        run: |ctx, args| {
            ctx.reply_from::<ZSet>(args[1], |zset, out| {
                out.array(args.len() - 2);
                for position in positions(zset, args) {
                    out.optional(position.map(geo::letters_of).as_ref().map(<[u8; 11]>::as_slice));
                }
            })
        },
        ..GEO
    },
    Command {
        name: "geopos",
        summary: "Returns the longitude and latitude of locations.",
        complexity: "O(1) for each place.",
        syntax: "key member...",
        run: |ctx, args| {
            ctx.reply_from::<ZSet>(args[1], |zset, out| {
                out.array(args.len() - 2);
                for position in positions(zset, args) {
                    match position {
                        Some(position) => reply_position(out, position),
                        None => out.null_array(),
                    }
                }
            })
        },
        ..GEO
    },
];

const GEO: Command = Command { group: Group::Geo, since: "3.2.0", arity: Arity::AtLeast(2), ..Command::BASE };

/// Longitude and latitude, which have to be on the map.
fn position(longitude: &[u8], latitude: &[u8]) -> Result<Position, CommandError> {
    let degrees = |text: &[u8]| number::parse_f64(text).ok_or(error::NOT_A_FLOAT);
    let position @ [x, y] = [degrees(longitude)?, degrees(latitude)?];
    if geo::is_on_map(position) {
        return Ok(position);
    }
    Err(CommandError::owned(format!("ERR invalid longitude,latitude pair {x:.6},{y:.6}")))
}

/// Metres of a unit.
fn unit(word: &[u8]) -> Result<f64, CommandError> {
    let metres = match &*word.to_ascii_lowercase() {
        b"m" => 1.0,
        b"km" => 1000.0,
        b"ft" => 0.3048,
        b"mi" => 1609.34,
        _ => return Err(CommandError::new("ERR unsupported unit provided. please use M, KM, FT, MI")),
    };
    Ok(metres)
}

/// Four digits are enough even for kilometres.
fn reply_distance(out: &mut Reply, distance: f64) {
    out.bulk(format!("{distance:.4}").as_bytes());
}

fn reply_position(out: &mut Reply, position: Position) {
    out.array(2);
    for degrees in position {
        let text = format!("{degrees:.17}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        out.spelled_double(if text == "-0" { "0" } else { text });
    }
}

/// The places of the members that a call names.
fn positions<'a>(zset: Option<&'a ZSet>, args: Args<'a>) -> impl Iterator<Item = Option<Position>> + 'a {
    args.rest(2).iter().map(move |member| zset?.score(member).map(geo::position_of))
}

/// As ZADD of the numbers.
fn add(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    let is = |word: &[u8], option: &str| word.eq_ignore_ascii_case(option.as_bytes());
    let is_option = |word: &&&[u8]| ["nx", "xx", "ch"].iter().any(|option| is(word, option));
    let (options, rest) = args.rest(2).split_at(args.rest(2).iter().take_while(is_option).count());
    let both = ["nx", "xx"].iter().all(|option| options.iter().any(|word| is(word, option)));
    if !rest.len().is_multiple_of(3) || both {
        return Err(error::SYNTAX);
    }
    let mut numbers = Vec::with_capacity(rest.len() / 3);
    for member in rest.chunks_exact(3) {
        numbers.push(geo::number_of(position(member[0], member[1])?).to_string());
    }
    let members = rest.chunks_exact(3).map(|member| member[2]);
    let pairs = numbers.iter().zip(members).flat_map(|(number, member)| [number.as_bytes(), member]);
    let items: Vec<&[u8]> =
        [&b"ZADD"[..], args[1]].into_iter().chain(options.iter().copied()).chain(pairs).collect();
    super::zset::add_members(ctx, Args::new(&items))
}

fn distance(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.len() > 5 {
        return Err(error::SYNTAX);
    }
    let metres = args.get(4).map_or(Ok(1.0), unit)?;
    ctx.reply_from::<ZSet>(args[1], |zset, out| {
        let of = |at: usize| zset?.score(args[at]).map(geo::position_of);
        match (of(2), of(3)) {
            (Some(one), Some(other)) => reply_distance(out, geo::distance(one, other) / metres),
            _ => out.null(),
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::Bench;

    #[test]
    fn places_come_back() {
        let mut bench = Bench::new();
        bench.expect("GEOADD Sicily 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", ":2");
        bench.expect("GEOADD Sicily NX CH 13 38 Palermo", ":0");
        bench.expect("GEOADD Sicily XX CH 13.361389 38.115556 Palermo 1 1 Nowhere", ":0");
        bench.expect("ZSCORE Sicily Palermo", "$16 3479099956230698");
        bench.expect("GEODIST Sicily Palermo Catania", "$11 166274.1516");
        bench.expect("GEODIST Sicily Palermo Catania km", "$8 166.2742");
        bench.expect("GEODIST Sicily Palermo Catania MI", "$8 103.3182");
        bench.expect("GEODIST Sicily Palermo Nowhere", "$-1");
        bench.expect(
            "GEODIST Sicily Palermo Catania ly",
            "-ERR unsupported unit provided. please use M, KM, FT, MI",
        );
        bench.expect("GEODIST Sicily Palermo Catania m m", "-ERR syntax error");
        bench.expect("GEOHASH Sicily Palermo Nowhere", "*2 $11 sqc8b49rny0 $-1");
        bench.expect(
            "GEOPOS Sicily Palermo Nowhere",
            "*2 *2 $20 13.36138933897018433 $20 38.11555639549629859 *-1",
        );
        bench.expect("GEOPOS none a", "*1 *-1");
        bench.check_roll_back(&["GEOADD Sicily 1 1 a", "GEOADD Sicily CH 2 2 Palermo", "GEOADD new 1 1 a"]);
    }

    #[test]
    fn what_is_refused() {
        let mut bench = Bench::new();
        for (line, wanted) in [
            ("GEOADD k 181 0 a", "-ERR invalid longitude,latitude pair 181.000000,0.000000"),
            ("GEOADD k 0 -85.06 a", "-ERR invalid longitude,latitude pair 0.000000,-85.060000"),
            ("GEOADD k 0 inf a", "-ERR invalid longitude,latitude pair 0.000000,inf"),
            ("GEOADD k 0 x a", "-ERR value is not a valid float"),
            ("GEOADD k 0 1 a 2", "-ERR syntax error"),
            ("GEOADD k NX XX 1 1 a", "-ERR syntax error"),
            ("GEOADD k NX CH CH", "-ERR syntax error"),
        ] {
            bench.expect(line, wanted);
        }
        bench.run("SET k text");
        for line in [
            "GEOADD k 1 1 a",
            "GEOPOS k a",
            "GEODIST k a b",
            "GEOHASH k",
            "GEOSEARCH k FROMMEMBER a BYRADIUS 1 m",
        ] {
            bench.expect(line, "-WRONGTYPE Operation against a key holding the wrong kind of value");
        }
    }
}
