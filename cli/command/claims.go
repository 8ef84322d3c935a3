package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/cli/apis"
)

// claims is the command with everything about permission claims below it.
func (s *session) claims(invocation string) *cobra.Command {
	get := group("get", "Show claims", "Show the claims of bindings, and the answers to them.", examples(invocation+" get", `
			# All claims in the current workspace
			%[1]s apibinding`), s.claimsGet(invocation+" get"))
	return group("claims", "Show and answer what the providers of bound APIs claim",
		`Show and answer permission claims: what the providers of bound APIs want to access in the workspace, besides the objects of
their own APIs. A claim has an effect where it is accepted.`,
		examples(invocation, `
			# All claims in the current workspace
			%[1]s get apibinding

			# Accept all of one binding
			%[1]s accept apibinding widgets

			# Reject one
			%[1]s reject apibinding widgets --resource secrets.core`),
		get, s.claimsAnswer(invocation, "accept", apis.Accepted), s.claimsAnswer(invocation, "reject", apis.Rejected), s.claimsUpdate(invocation))
}

func (s *session) claimsGet(invocation string) *cobra.Command {
	var output format
	cmd := &cobra.Command{
		Use:     "apibinding [NAME]",
		Aliases: []string{"apibindings"},
		Short:   "Show the claims of one binding, or of all",
		Long: `Show the claims of the export of one binding, or of all bindings, and the answers to them. STATE is
  Accepted     the provider has access, for the verbs that are both claimed and accepted
  Rejected     it has not
  Open         it has not either: there is no answer
  NotClaimed   there is an answer, and the export does not make the claim, or not any more`,
		Example: examples(invocation, `
			# Claims of all bindings of the current workspace
			%[1]s apibinding

			# Those of one, with the objects that they are about
			%[1]s apibinding widgets -o wide`),
		Args:              noMoreThan(1, "one name"),
		ValidArgsFunction: s.completeBindings,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.printClaims(cmd.Context(), strings.Join(args, ""), output)
		},
	}
	output.addChoice(cmd, []string{string(asJSON), string(asYAML), string(asWide)})
	return cmd
}

func (s *session) printClaims(ctx context.Context, name string, output format) error {
	p, err := s.inWorkspace(ctx)
	if err != nil {
		return err
	}
	client := apis.New(p.client)
	var bindings []apisv1alpha2.APIBinding
	if name == "" {
		bindings, err = client.Bindings(ctx, p.Location)
	} else {
		var binding *apisv1alpha2.APIBinding
		if binding, err = client.Binding(ctx, p.Location, name); err == nil {
			bindings = append(bindings, *binding)
		}
	}
	if err != nil {
		return err
	}
	claims := []apis.Claim{}
	for i := range bindings {
		claims = append(claims, apis.ClaimsOf(&bindings[i])...)
	}
	switch {
	case output.structured():
		return encode(s.Out, output, claims)
	case len(claims) == 0:
		_, err := fmt.Fprintf(s.ErrOut, "No claims found in %s.\n", p)
		return err
	}
	rows := [][]string{{"APIBINDING", "CLAIM", "VERBS", "STATE"}}
	if output == asWide {
		rows[0] = append(rows[0], "OBJECTS", "IDENTITY HASH")
	}
	for _, claim := range claims {
		state := string(claim.State)
		if claim.Differs() {
			state += " for " + strings.Join(claim.AnsweredVerbs, ",")
		}
		row := []string{claim.Binding, claim.Name(), strings.Join(claim.Verbs, ","), state}
		if output == asWide {
			row = append(row, objectsOf(claim), claim.IdentityHash)
		}
		rows = append(rows, row)
	}
	return table(s.Out, rows...)
}

// objectsOf says which objects the answer to a claim is about.
func objectsOf(claim apis.Claim) string {
	switch {
	case claim.Selector == nil:
		return ""
	case claim.Selector.MatchAll:
		return "all"
	}
	return metav1.FormatLabelSelector(&claim.Selector.LabelSelector)
}

// bindingArgument takes the name of a binding, with or without the word that says what it is.
func bindingArgument(name *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 2 && strings.HasPrefix("apibindings", args[0]) && strings.HasPrefix(args[0], "apibinding") {
			args = args[1:]
		}
		if len(args) != 1 {
			return fmt.Errorf("%s takes the name of one APIBinding; see %s --help", cmd.CommandPath(), cmd.CommandPath())
		}
		*name = args[0]
		return nil
	}
}

// claimsAnswer is the command that gives one answer to some claims.
func (s *session) claimsAnswer(invocation, verb string, state apis.State) *cobra.Command {
	var name, identityHash string
	var resources []string
	title := strings.ToUpper(verb[:1]) + verb[1:]
	cmd := &cobra.Command{
		Use:   verb + " apibinding NAME",
		Short: title + " claims of a binding",
		Long: title + ` all claims of the export of a binding, or some. What the binding answers to other claims stays. The answer is about
the verbs that are claimed now.`,
		Example: examples(invocation+" "+verb, `
			# All claims
			%[1]s apibinding widgets

			# Two of them
			%[1]s apibinding widgets --resource configmaps.core --resource roles.rbac.authorization.k8s.io`),
		Args:              bindingArgument(&name),
		ValidArgsFunction: s.completeBindingArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.changeClaims(cmd.Context(), name, func(binding *apisv1alpha2.APIBinding) ([]string, error) {
				claims, err := apis.Select(binding.Status.ExportPermissionClaims, resources, identityHash)
				var changed []string
				for _, claim := range claims {
					if apis.Answer(binding, claim, state) {
						changed = append(changed, fmt.Sprintf("%s %s (%s)", state, apis.ClaimName(claim), strings.Join(claim.Verbs, ", ")))
					}
				}
				return changed, err
			})
		},
	}
	cmd.Flags().StringArrayVar(&resources, "resource", nil, "Only the claim on RESOURCE.GROUP, such as configmaps.core; can be repeated")
	cmd.Flags().StringVar(&identityHash, "identity-hash", "", "Only claims with this identity hash")
	_ = cmd.RegisterFlagCompletionFunc("resource", s.completeClaims)
	return cmd
}

// claimsUpdate is the command that brings answers up to date.
func (s *session) claimsUpdate(invocation string) *cobra.Command {
	var name string
	return &cobra.Command{
		Use:   "update apibinding NAME",
		Short: "Make the answers of a binding about what is claimed now",
		Long: `Make the answers of a binding about what its export claims now: what is accepted or rejected stays so, for the verbs that are
claimed now, and answers to what is not claimed any more go. Open claims stay open.`,
		Example: examples(invocation+" update", `
			# After the export has claimed another verb
			%[1]s apibinding widgets`),
		Args:              bindingArgument(&name),
		ValidArgsFunction: s.completeBindingArgument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.changeClaims(cmd.Context(), name, func(binding *apisv1alpha2.APIBinding) ([]string, error) {
				var changed []string
				for _, claim := range apis.Renew(binding) {
					if claim.State == apis.NotClaimed {
						changed = append(changed, fmt.Sprintf("Removed %s, which is not claimed any more", claim.Name()))
						continue
					}
					changed = append(changed, fmt.Sprintf("%s %s (%s)", claim.State, claim.Name(), strings.Join(claim.Verbs, ", ")))
				}
				return changed, nil
			})
		},
	}
}

// changeClaims changes the answers of a binding, and prints what is different then.
func (s *session) changeClaims(ctx context.Context, name string, change func(*apisv1alpha2.APIBinding) ([]string, error)) error {
	p, err := s.inWorkspace(ctx)
	if err != nil {
		return err
	}
	var changed []string
	err = apis.New(p.client).Change(ctx, p.Location, name, func(binding *apisv1alpha2.APIBinding) (bool, error) {
		if binding.Status.APIExportClusterName == "" {
			return false, errors.New("it is not known yet what the export claims: " + apis.Describe(binding))
		}
		var err error
		changed, err = change(binding)
		return len(changed) > 0, err
	})
	if err != nil {
		return err
	}
	if len(changed) == 0 {
		changed = []string{fmt.Sprintf("APIBinding %q is so already", name)}
	}
	_, err = fmt.Fprintln(s.Out, strings.Join(changed, "\n"))
	return err
}
