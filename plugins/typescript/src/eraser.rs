//! What of a program is types.

use crate::Refusal;
use crate::blanks::Blanks;
use oxc_ast::ast::{
    AccessorProperty, Class, ClassElement, Declaration, Decorator, ExportAllDeclaration,
    ExportDefaultDeclarationKind, ExportSpecifier, FormalParameter, Function, ImportDeclaration,
    ImportDeclarationSpecifier, ImportOrExportKind, MethodDefinition, MethodDefinitionType,
    PropertyDefinition, PropertyDefinitionType, Statement, TSAsExpression, TSEnumDeclaration,
    TSExportAssignment, TSExternalModuleDeclaration, TSGlobalDeclaration,
    TSImportEqualsDeclaration, TSNamespaceDeclaration, TSNamespaceExportDeclaration,
    TSNonNullExpression, TSSatisfiesExpression, TSThisParameter, TSTypeAnnotation, TSTypeAssertion,
    TSTypeParameterDeclaration, TSTypeParameterInstantiation, VariableDeclarator,
};
use oxc_ast_visit::{Visit, walk};
use oxc_span::{GetSpan, Span};
use oxc_syntax::scope::ScopeFlags;
use std::ops::Range;

/// Words before the name of a member that only say types.
const MODIFIERS: [&str; 7] =
    ["public", "private", "protected", "readonly", "override", "abstract", "declare"];

/// Goes through a program and blanks its types.
pub struct Eraser<'s> {
    source: &'s str,
    blanks: Blanks,
    /// The first thing that is more than a type.
    refused: Option<Refusal>,
}

fn range(span: Span) -> Range<usize> {
    span.start as usize..span.end as usize
}

impl<'s> Eraser<'s> {
    pub fn new(source: &'s str) -> Eraser<'s> {
        Eraser { source, blanks: Blanks::default(), refused: None }
    }

    /// The text without its types.
    pub fn finish(self) -> Result<String, Refusal> {
        match self.refused {
            Some(refusal) => Err(refusal),
            None => Ok(self.blanks.apply(self.source)),
        }
    }

    fn refuse(&mut self, span: Span, what: &str) {
        if self.refused.is_none() {
            let message = format!("{what} would need other code: only types can be removed");
            self.refused = Some(Refusal::new(message, self.source, span.start as usize));
        }
    }

    fn erase(&mut self, span: Span) {
        self.blanks.add(range(span));
    }

    fn erase_statement(&mut self, span: Span) {
        self.blanks.add_statement(range(span));
    }

    /// Blanks a part and the comma that follows it.
    fn erase_item(&mut self, span: Span) {
        let part = range(span);
        let rest = &self.source[part.end..];
        let comma = rest.len() - rest.trim_start().len();
        let end = if rest[comma..].starts_with(',') { part.end + comma + 1 } else { part.end };
        self.blanks.add(part.start..end);
    }

    /// Blanks what stands behind an expression, such as `as T`. What comes on the next line must not become a part of it.
    fn erase_behind(&mut self, inner: Span, outer: Span) {
        let part = inner.end as usize..outer.end as usize;
        let rest = &self.source[part.end..];
        let gap = rest.len() - rest.trim_start().len();
        let joins = rest[gap..].starts_with(['(', '[', '`']) && rest[..gap].contains('\n');
        match joins {
            true => self.blanks.add_statement(part),
            false => self.blanks.add(part),
        }
    }

    /// Blanks the words that only say types between `start` and `end`.
    fn erase_modifiers(&mut self, start: u32, end: u32) {
        let (start, end) = (start as usize, end as usize);
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        let text = &self.source[start..end];
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            if MODIFIERS.contains(&&rest[..length]) {
                self.blanks.add(start + at..start + at + length);
            }
            at += length + rest[length..].chars().next().map_or(0, char::len_utf8);
        }
    }

    /// Blanks a mark such as `?` between `start` and `end`.
    fn erase_mark(&mut self, start: u32, end: u32) {
        let (start, end) = (start as usize, end as usize);
        if let Some(at) = self.source.get(start..end).and_then(|text| text.find(['?', '!'])) {
            self.blanks.add(start + at..start + at + 1);
        }
    }

    /// Whether a declaration says types and nothing else.
    fn is_type(declaration: &Declaration<'_>) -> bool {
        match declaration {
            Declaration::TSTypeAliasDeclaration(_) | Declaration::TSInterfaceDeclaration(_) => true,
            Declaration::TSEnumDeclaration(it) => it.declare,
            Declaration::TSNamespaceDeclaration(it) => it.declare,
            Declaration::TSExternalModuleDeclaration(_) | Declaration::TSGlobalDeclaration(_) => {
                true
            }
            Declaration::TSImportEqualsDeclaration(it) => {
                it.import_kind == ImportOrExportKind::Type
            }
            Declaration::VariableDeclaration(it) => it.declare,
            Declaration::ClassDeclaration(it) => it.declare,
            Declaration::FunctionDeclaration(it) => it.declare || it.body.is_none(),
        }
    }

    fn is_type_statement(statement: &Statement<'_>) -> bool {
        use ImportOrExportKind::Type;
        match statement {
            Statement::ImportDeclaration(it) => it.import_kind == Type,
            Statement::ExportNamedDeclaration(it) => it.export_kind == Type,
            Statement::ExportFromDeclaration(it) => it.export_kind == Type,
            Statement::ExportAllDeclaration(it) => it.export_kind == Type,
            Statement::ExportDeclaration(it) => Self::is_type(&it.declaration),
            Statement::ExportDefaultDeclaration(it) => match &it.declaration {
                ExportDefaultDeclarationKind::TSInterfaceDeclaration(_) => true,
                ExportDefaultDeclarationKind::FunctionDeclaration(it) => it.body.is_none(),
                _ => false,
            },
            other => other.as_declaration().is_some_and(Self::is_type),
        }
    }
}

impl<'a> Visit<'a> for Eraser<'_> {
    fn visit_statement(&mut self, it: &Statement<'a>) {
        match Self::is_type_statement(it) {
            true => self.erase_statement(it.span()),
            false => walk::walk_statement(self, it),
        }
    }

    fn visit_ts_type_annotation(&mut self, it: &TSTypeAnnotation<'a>) {
        self.erase(it.span);
    }

    fn visit_ts_type_parameter_declaration(&mut self, it: &TSTypeParameterDeclaration<'a>) {
        self.erase(it.span);
    }

    fn visit_ts_type_parameter_instantiation(&mut self, it: &TSTypeParameterInstantiation<'a>) {
        self.erase(it.span);
    }

    fn visit_ts_as_expression(&mut self, it: &TSAsExpression<'a>) {
        self.visit_expression(&it.expression);
        self.erase_behind(it.expression.span(), it.span);
    }

    fn visit_ts_satisfies_expression(&mut self, it: &TSSatisfiesExpression<'a>) {
        self.visit_expression(&it.expression);
        self.erase_behind(it.expression.span(), it.span);
    }

    fn visit_ts_non_null_expression(&mut self, it: &TSNonNullExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blanks.add(it.expression.span().end as usize..it.span.end as usize);
    }

    fn visit_ts_type_assertion(&mut self, it: &TSTypeAssertion<'a>) {
        self.blanks.add(it.span.start as usize..it.expression.span().start as usize);
        self.visit_expression(&it.expression);
    }

    fn visit_ts_this_parameter(&mut self, it: &TSThisParameter<'a>) {
        self.erase_item(it.span);
    }

    fn visit_formal_parameter(&mut self, it: &FormalParameter<'a>) {
        if it.accessibility.is_some() || it.readonly || it.r#override {
            self.refuse(it.span, "a parameter that is a property");
        }
        if it.optional {
            let end = it.type_annotation.as_ref().map_or(it.span.end, |of| of.span.start);
            self.erase_mark(it.pattern.span().end, end);
        }
        walk::walk_formal_parameter(self, it);
    }

    fn visit_variable_declarator(&mut self, it: &VariableDeclarator<'a>) {
        if it.definite {
            let end = it.type_annotation.as_ref().map_or(it.span.end, |of| of.span.start);
            self.erase_mark(it.id.span().end, end);
        }
        walk::walk_variable_declarator(self, it);
    }

    fn visit_function(&mut self, it: &Function<'a>, flags: ScopeFlags) {
        walk::walk_function(self, it, flags);
    }

    fn visit_class(&mut self, it: &Class<'a>) {
        if it.r#abstract {
            let end = it.id.as_ref().map_or(it.body.span.start, |id| id.span.start);
            self.erase_modifiers(it.span.start, end);
        }
        if let (Some(first), Some(last)) = (it.implements.first(), it.implements.last()) {
            let before = &self.source[..first.span.start as usize];
            let start = before.rfind("implements").unwrap_or(before.len());
            self.blanks.add(start..last.span.end as usize);
        }
        walk::walk_class(self, it);
    }

    fn visit_class_element(&mut self, it: &ClassElement<'a>) {
        let is_type = match it {
            ClassElement::TSIndexSignature(_) => true,
            ClassElement::MethodDefinition(it) => {
                it.r#type == MethodDefinitionType::TSAbstractMethodDefinition
                    || it.value.body.is_none()
            }
            ClassElement::PropertyDefinition(it) => {
                it.r#type == PropertyDefinitionType::TSAbstractPropertyDefinition || it.declare
            }
            ClassElement::AccessorProperty(_) | ClassElement::StaticBlock(_) => false,
        };
        match is_type {
            true => self.erase_statement(it.span()),
            false => walk::walk_class_element(self, it),
        }
    }

    fn visit_method_definition(&mut self, it: &MethodDefinition<'a>) {
        self.erase_modifiers(it.span.start, it.key.span().start);
        if it.optional {
            self.erase_mark(it.key.span().end, it.value.params.span.start);
        }
        walk::walk_method_definition(self, it);
    }

    fn visit_property_definition(&mut self, it: &PropertyDefinition<'a>) {
        self.erase_modifiers(it.span.start, it.key.span().start);
        if it.optional || it.definite {
            let value = it.value.as_ref().map_or(it.span.end, |value| value.span().start);
            let end = it.type_annotation.as_ref().map_or(value, |of| of.span.start);
            self.erase_mark(it.key.span().end, end);
        }
        walk::walk_property_definition(self, it);
    }

    fn visit_import_declaration(&mut self, it: &ImportDeclaration<'a>) {
        for specifier in it.specifiers.iter().flatten() {
            if let ImportDeclarationSpecifier::ImportSpecifier(of) = specifier
                && of.import_kind == ImportOrExportKind::Type
            {
                self.erase_item(of.span);
            }
        }
    }

    fn visit_export_specifier(&mut self, it: &ExportSpecifier<'a>) {
        if it.export_kind == ImportOrExportKind::Type {
            self.erase_item(it.span);
        }
    }

    fn visit_export_all_declaration(&mut self, _: &ExportAllDeclaration<'a>) {}

    fn visit_decorator(&mut self, it: &Decorator<'a>) {
        self.refuse(it.span, "a decorator");
    }

    fn visit_accessor_property(&mut self, it: &AccessorProperty<'a>) {
        self.refuse(it.span, "an accessor");
    }

    fn visit_ts_enum_declaration(&mut self, it: &TSEnumDeclaration<'a>) {
        self.refuse(it.span, "an enum");
    }

    fn visit_ts_namespace_declaration(&mut self, it: &TSNamespaceDeclaration<'a>) {
        self.refuse(it.span, "a namespace");
    }

    fn visit_ts_external_module_declaration(&mut self, it: &TSExternalModuleDeclaration<'a>) {
        self.refuse(it.span, "a module");
    }

    fn visit_ts_global_declaration(&mut self, it: &TSGlobalDeclaration<'a>) {
        self.refuse(it.span, "a global declaration");
    }

    fn visit_ts_import_equals_declaration(&mut self, it: &TSImportEqualsDeclaration<'a>) {
        self.refuse(it.span, "import =");
    }

    fn visit_ts_export_assignment(&mut self, it: &TSExportAssignment<'a>) {
        self.refuse(it.span, "export =");
    }

    fn visit_ts_namespace_export_declaration(&mut self, it: &TSNamespaceExportDeclaration<'a>) {
        self.refuse(it.span, "export as namespace");
    }
}
