//! Blocks and statements.

use super::lexer::Token;
use super::outline::SyntaxError;
use super::parser::{Expr, Known, Parsed, Parser};

impl Parser {
    pub(super) fn block(&mut self) -> Parsed<()> {
        loop {
            match self.peek() {
                Token::End | Token::Word("end" | "else" | "elseif" | "until") => return Ok(()),
                _ => self.statement()?,
            }
            self.accept(";");
        }
    }

    /// A block with a scope of its own, and `end`.
    fn closed_block(&mut self) -> Parsed<()> {
        self.in_scope(Self::block)?;
        self.expect("end")
    }

    fn statement(&mut self) -> Parsed<()> {
        let Token::Word(word) = *self.peek() else { return self.call_or_assignment() };
        match word {
            "if" => return self.branches(),
            "for" => return self.for_loop(),
            "function" => return self.function(),
            "(" => return self.call_or_assignment(),
            _ => self.at += 1,
        }
        match word {
            "do" => self.closed_block(),
            "while" => {
                self.expression()?;
                self.expect("do")?;
                self.closed_block()
            }
            // The condition sees the variables of the block.
            "repeat" => self.in_scope(|parser| {
                parser.block()?;
                parser.expect("until")?;
                parser.expression().map(drop)
            }),
            "local" => self.local_statement(),
            "break" => Ok(()),
            "return" => match self.peek() {
                Token::End | Token::Word("end" | "else" | "elseif" | "until" | ";") => Ok(()),
                _ => self.expressions().map(drop),
            },
            _ => {
                self.at -= 1;
                Err(SyntaxError::new(self.line(), format!("unexpected symbol near '{word}'")))
            }
        }
    }

    fn branches(&mut self) -> Parsed<()> {
        while self.accept("if") || self.accept("elseif") {
            self.expression()?;
            self.expect("then")?;
            self.in_scope(Self::block)?;
        }
        if self.accept("else") {
            self.in_scope(Self::block)?;
        }
        self.expect("end")
    }

    fn for_loop(&mut self) -> Parsed<()> {
        self.expect("for")?;
        let names = self.names()?;
        if !self.accept("=") {
            self.expect("in")?;
        }
        self.expressions()?;
        self.expect("do")?;
        self.in_scope(|parser| {
            names.into_iter().for_each(|name| parser.declare(name, None));
            parser.block()
        })?;
        self.expect("end")
    }

    fn names(&mut self) -> Parsed<Vec<String>> {
        let mut names = vec![self.name()?];
        while self.accept(",") {
            names.push(self.name()?);
        }
        Ok(names)
    }

    /// `function name.field:method() … end`
    fn function(&mut self) -> Parsed<()> {
        self.expect("function")?;
        let (line, name) = (self.line(), self.name()?);
        let mut is_method = false;
        let is_plain = !self.is(".") && !self.is(":");
        while self.is(".") || self.is(":") {
            is_method = self.is(":");
            self.at += 1;
            self.name()?;
        }
        let is_local = if is_plain { self.reassign(&name) } else { self.local(&name).is_some() };
        if !is_local {
            self.global(&name, line, is_plain);
        }
        self.function_body(is_method)
    }

    pub(super) fn function_body(&mut self, is_method: bool) -> Parsed<()> {
        self.expect("(")?;
        self.in_scope(|parser| {
            if is_method {
                parser.declare("self".to_owned(), None);
            }
            while !parser.is(")") {
                if !parser.accept("...") {
                    let name = parser.name()?;
                    parser.declare(name, None);
                }
                if !parser.accept(",") {
                    break;
                }
            }
            parser.expect(")")?;
            parser.block()
        })?;
        self.expect("end")
    }

    fn local_statement(&mut self) -> Parsed<()> {
        if self.accept("function") {
            let name = self.name()?;
            if self.scopes.len() == 1 {
                self.outline.local_functions.push(name.clone());
            }
            // It may call itself.
            self.declare(name, None);
            return self.function_body(false);
        }
        let names = self.names()?;
        let values = if self.accept("=") { self.expressions()? } else { Vec::new() };
        let mut values = values.into_iter();
        for name in names {
            let value = match values.next() {
                Some(Expr::Member(member)) => Some(Known::Member(member)),
                Some(Expr::Text(text)) => Some(Known::Text(text)),
                Some(Expr::Local(_, known)) => known,
                _ => None,
            };
            self.declare(name, value);
        }
        Ok(())
    }

    fn call_or_assignment(&mut self) -> Parsed<()> {
        let first = self.suffixed()?;
        if !self.is("=") && !self.is(",") {
            return match first {
                Expr::Open => Ok(()),
                _ => self.expected("'='"),
            };
        }
        let mut targets = vec![first];
        while self.accept(",") {
            targets.push(self.suffixed()?);
        }
        self.expect("=")?;
        self.expressions()?;
        targets.iter().for_each(|target| self.assigned(target));
        Ok(())
    }
}
