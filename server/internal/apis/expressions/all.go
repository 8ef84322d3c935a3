package expressions

import (
	"fmt"
	"reflect"
	"strings"
)

// CheckAll checks the expressions of an object of Kubernetes' Go types: all fields whose names end with Expression.
func CheckAll(object any) error { return checkAll(reflect.ValueOf(object), "") }

func checkAll(v reflect.Value, path string) error {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return checkAll(v.Elem(), path)
		}
	case reflect.Slice:
		for i := range v.Len() {
			if err := checkAll(v.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if !field.IsExported() || field.Name == "ObjectMeta" {
				continue
			}
			within := strings.TrimPrefix(path+"."+strings.ToLower(field.Name[:1])+field.Name[1:], ".")
			if field.Type.Kind() == reflect.String && strings.HasSuffix(field.Name, "Expression") {
				if err := Check(v.Field(i).String()); err != nil {
					return fmt.Errorf("%s: %w", within, err)
				}
				continue
			}
			if err := checkAll(v.Field(i), within); err != nil {
				return err
			}
		}
	}
	return nil
}
