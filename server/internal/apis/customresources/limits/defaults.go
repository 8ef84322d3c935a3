package limits

import (
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkDefaults returns an error for each place where the defaults of a version make objects too large. The defaults
// within a default expand it, and multiply.
func checkDefaults(s *apiextensionsv1.JSONSchemaProps, at *field.Path) (errs field.ErrorList) {
	root := defaultsOf(s)
	if root == nil {
		return nil
	}
	root.check(at, MaxDefaults, &errs)
	return errs
}

// defaulted is a schema that contains defaults.
type defaulted struct {
	value      any // the default; nil without one
	size       int // of the default, expanded; 0 until it is computed
	properties map[string]*defaulted
	items      *defaulted
	values     *defaulted
	itemsMost  int // the maximum number of items; 0 if it is unlimited
	valuesMost int
}

// defaultsOf returns the defaults of a schema; nil if it has none.
func defaultsOf(s *apiextensionsv1.JSONSchemaProps) *defaulted {
	d := &defaulted{}
	found := false
	if s.Default != nil && json.Unmarshal(s.Default.Raw, &d.value) == nil && d.value != nil {
		found = true
	}
	for name, property := range s.Properties {
		if within := defaultsOf(&property); within != nil {
			if d.properties == nil {
				d.properties = map[string]*defaulted{}
			}
			d.properties[name], found = within, true
		}
	}
	if s.Items != nil && s.Items.Schema != nil {
		d.items = defaultsOf(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		d.values = defaultsOf(s.AdditionalProperties.Schema)
	}
	d.itemsMost, d.valuesMost = most(s.MaxItems), most(s.MaxProperties)
	if !found && d.items == nil && d.values == nil {
		return nil
	}
	return d
}

func most(n *int64) int {
	if n == nil || *n < 1 {
		return 0
	}
	return int(min(*n, 1<<30))
}

// expanded returns the size of the default including everything that nested defaults add to it.
func (d *defaulted) expanded() int {
	if d.size == 0 {
		d.size = d.sizeOf(d.value)
	}
	return d.size
}

// sizeOf returns the size of a value in JSON after defaulting. It stops counting slightly above MaxDefaults.
func (d *defaulted) sizeOf(value any) int {
	const enough = 2 * MaxDefaults
	size := 2
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			within := (*defaulted)(nil)
			if d != nil {
				if within = d.properties[key]; within == nil {
					within = d.values
				}
			}
			if size += len(key) + 4 + within.sizeOf(field); size > enough {
				return enough
			}
		}
		if d != nil {
			for key, property := range d.properties {
				if _, ok := value[key]; !ok && property.value != nil {
					if size += len(key) + 4 + property.expanded(); size > enough {
						return enough
					}
				}
			}
		}
	case []any:
		for _, item := range value {
			within := (*defaulted)(nil)
			if d != nil {
				within = d.items
			}
			if size += 1 + within.sizeOf(item); size > enough {
				return enough
			}
		}
	case nil:
		if d != nil && d.value != nil {
			return d.expanded()
		}
		size = 4
	case string:
		size += len(value)
	default:
		size = 8
	}
	return min(size, enough)
}

// adds returns how many bytes the defaults of an object's properties add, without those of items and map values.
func (d *defaulted) adds() int {
	n := 0
	for key, property := range d.properties {
		if property.value != nil {
			n += len(key) + 4 + property.expanded()
		}
		n += property.adds() // where the field already exists
		if n > 2*MaxDefaults {
			break
		}
	}
	return n
}

// check compares the bytes that the defaults below a schema add with the limit.
func (d *defaulted) check(at *field.Path, allowed int, errs *field.ErrorList) {
	if n := d.adds(); n > allowed {
		*errs = append(*errs, field.Forbidden(at, fmt.Sprintf("defaults add more than %d bytes to each object at this path; make "+
			"them smaller, or set maxItems or maxProperties on the list or map", allowed)))
		return
	}
	d.checkItems(at, allowed, errs)
}

// checkItems checks the lists and maps below a schema.
func (d *defaulted) checkItems(at *field.Path, allowed int, errs *field.ErrorList) {
	for name, property := range d.properties {
		property.checkItems(at.Child("properties").Key(name), allowed, errs)
	}
	if d.items != nil {
		d.items.checkItem(at.Child("items"), allowed, d.itemsMost, errs)
	}
	if d.values != nil {
		d.values.checkItem(at.Child("additionalProperties"), allowed, d.valuesMost, errs)
	}
}

// checkItem checks an item of a list or map with at most so many items. Its own default replaces null.
func (d *defaulted) checkItem(at *field.Path, allowed, most int, errs *field.ErrorList) {
	each := MaxItemDefaults
	if most > 0 {
		each = max(each, allowed/most)
	}
	each = min(each, allowed)
	if d.value != nil && d.expanded() > each {
		*errs = append(*errs, field.Forbidden(at.Child("default"), fmt.Sprintf("the default of an item adds more than %d bytes", each)))
		return
	}
	d.check(at, each, errs)
}
