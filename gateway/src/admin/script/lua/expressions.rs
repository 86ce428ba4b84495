//! Expressions.

use super::lexer::Token;
use super::outline::{Argument, Call, Member, SyntaxError};
use super::parser::{Expr, Known, Parsed, Parser};
use super::text::{Parts, Text};

impl Parser {
    pub(super) fn expressions(&mut self) -> Parsed<Vec<Expr>> {
        let mut all = vec![self.expression()?];
        while self.accept(",") {
            all.push(self.expression()?);
        }
        Ok(all)
    }

    /// Which operator binds more tightly makes no difference here: nothing is known of what has different ones.
    pub(super) fn expression(&mut self) -> Parsed<Expr> {
        self.nested(|parser| {
            let mut value = parser.operand()?;
            parser.used(&value);
            while let Token::Word(
                "+" | "-" | "*" | "/" | "%" | "^" | ".." | "<" | "<=" | ">" | ">=" | "==" | "~=" | "and"
                | "or",
            ) = parser.peek()
            {
                let concatenates = parser.accept("..");
                parser.at += usize::from(!concatenates);
                let other = parser.operand()?;
                parser.used(&other);
                value = match (text_of(value), text_of(other)) {
                    (Some(before), Some(behind)) if concatenates => {
                        before.followed_by(behind).map_or(Expr::Other, Expr::Text)
                    }
                    _ => Expr::Other,
                };
            }
            Ok(value)
        })
    }

    fn operand(&mut self) -> Parsed<Expr> {
        let mut is_changed = false;
        while self.accept("not") || self.accept("-") || self.accept("#") {
            is_changed = true;
        }
        let value = self.simple()?;
        if is_changed {
            self.used(&value);
            return Ok(Expr::Other);
        }
        Ok(value)
    }

    fn simple(&mut self) -> Parsed<Expr> {
        let value = match self.peek() {
            Token::Text(text) | Token::Number(text) => Expr::Text(Text::literal(text)),
            Token::Word("...") => Expr::Open,
            Token::Word("nil" | "true" | "false") => Expr::Other,
            Token::Word("{") => return self.table(),
            Token::Word("function") => {
                self.at += 1;
                return self.function_body(false).map(|()| Expr::Other);
            }
            _ => return self.suffixed(),
        };
        self.at += 1;
        Ok(value)
    }

    fn table(&mut self) -> Parsed<Expr> {
        self.expect("{")?;
        while !self.is("}") {
            let is_named = matches!(self.peek(), Token::Name(_)) && *self.ahead(1) == Token::Word("=");
            if is_named {
                self.at += 2;
            } else if self.accept("[") {
                self.expression()?;
                self.expect("]")?;
                self.expect("=")?;
            }
            self.expression()?;
            if !self.accept(",") && !self.accept(";") {
                break;
            }
        }
        self.expect("}")?;
        Ok(Expr::Other)
    }

    /// A variable, or an expression in parentheses, and what stands behind it: fields, indices and calls.
    pub(super) fn suffixed(&mut self) -> Parsed<Expr> {
        let line = self.line();
        let mut value = if self.accept("(") {
            self.expression()?;
            self.expect(")")?;
            Expr::Other
        } else {
            match self.peek() {
                Token::Name(_) => {}
                _ => return Err(SyntaxError::new(line, "unexpected symbol")),
            }
            let name = self.name()?;
            match self.local(&name) {
                Some(local) => Expr::Local(name, local.value.clone()),
                None => Expr::Global(name, line),
            }
        };
        loop {
            let line = self.line();
            match self.peek() {
                Token::Word(".") => {
                    self.at += 1;
                    let name = self.name()?;
                    self.used(&value);
                    value = match value {
                        Expr::Global(table, _) => Expr::Member(Member { table, name, line }),
                        _ => Expr::Other,
                    };
                }
                Token::Word("[") => {
                    self.at += 1;
                    self.used(&value);
                    self.expression()?;
                    self.expect("]")?;
                    value = match value {
                        Expr::Global(table, _) if table == "KEYS" => Expr::Text(Text::of(Parts::Key)),
                        Expr::Global(table, _) if table == "ARGV" => Expr::Text(Text::of(Parts::Argument)),
                        _ => Expr::Other,
                    };
                }
                Token::Word(":") => {
                    self.at += 1;
                    self.name()?;
                    self.used(&value);
                    self.arguments()?;
                    value = Expr::Open;
                }
                Token::Word("(" | "{") | Token::Text(_) => {
                    self.used(&value);
                    let args = self.arguments()?;
                    if let Expr::Member(function) | Expr::Local(_, Some(Known::Member(function))) = value {
                        self.called(Member { line, ..function }, &args);
                    }
                    value = Expr::Open;
                }
                _ => return Ok(value),
            }
        }
    }

    fn called(&mut self, function: Member, args: &[Expr]) {
        let mut known = Vec::with_capacity(args.len());
        for arg in args {
            known.push(match arg {
                Expr::Text(text) | Expr::Local(_, Some(Known::Text(text))) => {
                    self.depends(known.len(), &text.variables);
                    text.argument()
                }
                _ => Argument::Other,
            });
        }
        let is_open = matches!(args.last(), Some(Expr::Open));
        self.outline.calls.push(Call { function, args: known, is_open });
    }

    fn arguments(&mut self) -> Parsed<Vec<Expr>> {
        match self.peek() {
            Token::Text(text) => {
                let text = Text::literal(text);
                self.at += 1;
                Ok(vec![Expr::Text(text)])
            }
            Token::Word("{") => self.nested(Self::table).map(|table| vec![table]),
            _ => {
                self.expect("(")?;
                if self.accept(")") {
                    return Ok(Vec::new());
                }
                let args = self.expressions()?;
                self.expect(")")?;
                Ok(args)
            }
        }
    }
}

fn text_of(expr: Expr) -> Option<Text> {
    match expr {
        Expr::Text(text) | Expr::Local(_, Some(Known::Text(text))) => Some(text),
        _ => None,
    }
}
