package main

import (
	"fmt"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// constraints returns sentences about the valid values and the default of a field.
func constraints(s *apiextensionsv1.JSONSchemaProps) []string {
	var said []string
	say := func(format string, arguments ...any) { said = append(said, fmt.Sprintf(format, arguments...)) }
	if s.Default != nil {
		say("Default: `%s`.", s.Default.Raw)
	}
	if len(s.Enum) > 0 {
		values := make([]string, len(s.Enum))
		for i, value := range s.Enum {
			if values[i] = strings.Trim(string(value.Raw), `"`); values[i] == "" {
				values[i] = `""`
			}
		}
		say("One of %s.", code(values))
	}
	if s.Pattern != "" {
		say("Pattern: `%s`.", s.Pattern)
	}
	if s.Format != "" && s.Format != "date-time" && s.Type == "string" {
		say("Format: %s.", s.Format)
	}
	limit := func(least, most *int64, of string) {
		if text := between(least, most, of); text != "" {
			say("%s.", text)
		}
	}
	limit(s.MinLength, s.MaxLength, " characters")
	limit(s.MinItems, s.MaxItems, " items")
	limit(s.MinProperties, s.MaxProperties, " entries")
	if s.Minimum != nil || s.Maximum != nil {
		limit(whole(s.Minimum), whole(s.Maximum), "")
	}
	if s.XListType != nil && *s.XListType == "set" {
		say("Items must be unique.")
	}
	if len(s.XListMapKeys) > 0 {
		say("One item for each %s.", strings.Join(strings.Fields(code(s.XListMapKeys)), " "))
	}
	if s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields {
		say("Unknown fields are preserved.")
	}
	for _, rule := range s.XValidations {
		said = append(said, sayRule(rule))
	}
	return said
}

// between returns a phrase for the range of a number of characters, items or entries.
func between(least, most *int64, of string) string {
	switch {
	case least != nil && most != nil && *least == *most:
		return fmt.Sprintf("%d%s", *least, of)
	case least != nil && most != nil:
		return fmt.Sprintf("%d to %d%s", *least, *most, of)
	case least != nil && *least == 1 && of != "":
		return "Not empty"
	case least != nil:
		return fmt.Sprintf("At least %d%s", *least, of)
	case most != nil:
		return fmt.Sprintf("At most %d%s", *most, of)
	}
	return ""
}

func whole(number *float64) *int64 {
	if number == nil {
		return nil
	}
	rounded := int64(*number)
	return &rounded
}

// sayRule returns a sentence for a validation rule: the message with which the server refuses a value.
func sayRule(rule apiextensionsv1.ValidationRule) string {
	message := rule.Message
	if message == "" {
		message = literals(rule.MessageExpression)
	}
	if message == "" {
		message = "`" + rule.Rule + "`"
	}
	when := "Rule"
	if strings.Contains(rule.Rule, "oldSelf") {
		when = "When it changes"
	}
	return when + ": " + strings.TrimSuffix(message, ".") + "."
}

// literals returns the string literals of an expression, with dots in place of computed parts.
func literals(expression string) string {
	var said strings.Builder
	for i, part := range strings.Split(expression, "'") {
		switch {
		case i%2 == 1:
			said.WriteString(part)
		case strings.Contains(part, "+") && i > 0 && strings.TrimSpace(part) != "+":
			said.WriteString("…")
		}
	}
	if said.Len() == 0 && expression != "" {
		return strconv.Quote(expression)
	}
	return said.String()
}
