//! Expressions.

use super::lexer::Token;
use super::outline::{Call, Member, SyntaxError};
use super::parser::{Expr, Parsed, Parser};

impl Parser {
    pub(super) fn expressions(&mut self) -> Parsed<Vec<Expr>> {
        let mut all = vec![self.expression()?];
        while self.accept(",") {
            all.push(self.expression()?);
        }
        Ok(all)
    }

    /// Which operator binds more tightly makes no difference here.
    pub(super) fn expression(&mut self) -> Parsed<Expr> {
        self.nested(|parser| {
            let mut value = parser.operand()?;
            parser.used(&value);
            while let Token::Word(
                "+" | "-" | "*" | "/" | "%" | "^" | ".." | "<" | "<=" | ">" | ">=" | "==" | "~=" | "and"
                | "or",
            ) = parser.peek()
            {
                parser.at += 1;
                let other = parser.operand()?;
                parser.used(&other);
                value = Expr::Other;
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
            Token::Text(text) | Token::Number(text) => Expr::Literal(text.clone()),
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
                    value = Expr::Other;
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
                    if let Expr::Member(function) | Expr::Local(_, Some(function)) = value {
                        self.called(Member { line, ..function }, &args);
                    }
                    value = Expr::Open;
                }
                _ => return Ok(value),
            }
        }
    }

    fn called(&mut self, function: Member, args: &[Expr]) {
        let literal = |arg: &Expr| match arg {
            Expr::Literal(text) => Some(text.clone()),
            _ => None,
        };
        self.outline.calls.push(Call {
            function,
            args: args.iter().map(literal).collect(),
            is_open: matches!(args.last(), Some(Expr::Open)),
        });
    }

    fn arguments(&mut self) -> Parsed<Vec<Expr>> {
        match self.peek() {
            Token::Text(text) => {
                let text = text.clone();
                self.at += 1;
                Ok(vec![Expr::Literal(text)])
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
