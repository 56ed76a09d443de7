"""Completion script for bash."""

import shlex
from collections.abc import Iterator

from sluice.router.cli.completion.values import ValueCompletion, ValueSource, complete_argument, complete_option
from sluice.router.cli.syntax import CommandSyntax

# Names of a router are never expanded or evaluated: `compgen -W` would run commands in them. `printf %q` quotes them.
_LIBRARY = r"""
# Set COMPREPLY for the command line of program $1; $2 is the text that readline replaces. The function __$1_syntax
# sets options, commands, arguments and values for a command.
__sluice_complete() {
    local program=$1 replaced=$2 line=${COMP_LINE:0:COMP_POINT} index word
    local -a words=()
    # Readline also splits words at : and =. Join them again.
    for ((index = 0; index <= COMP_CWORD; index++)); do
        word=${COMP_WORDS[index]}
        if [[ $index == 0 || $line == [[:blank:]]* || ( $index == "$COMP_CWORD" && -z $line && -z $word ) ]]; then
            line=${line#"${line%%[![:blank:]]*}"}
            words+=("")
        fi
        [[ $index == "$COMP_CWORD" ]] && word=$line
        words[${#words[@]} - 1]+=$word
        line=${line#"$word"}
    done
    local current=${words[${#words[@]} - 1]}
    unset "words[${#words[@]} - 1]"
    local strip=$((${#current} - ${#replaced}))
    ((strip < 0)) && strip=0

    local place=$program options='' commands='' expected='' only='' count=0 action='' lead=''
    local -a arguments=() names=()
    local -A values=()
    "__${program}_syntax" "$place"
    for word in "${words[@]:1}"; do
        if [[ -n $expected ]]; then
            expected=''
        elif [[ -z $only && $word == -- ]]; then
            only=yes
        elif [[ -z $only && $word == -?* ]]; then
            expected=${values[$word]-}
        elif [[ " $commands " == *" $word "* ]]; then
            place+=" $word" options='' commands='' arguments=() values=() count=0
            "__${program}_syntax" "$place"
        else
            ((count++))
        fi
    done

    COMPREPLY=()
    if [[ -n $expected ]]; then
        action=$expected
    elif [[ -z $only && $current == --*=* ]]; then
        lead=${current%%=*}=
        action=${values[${lead%=}]-none}
        current=${current#*=}
    elif [[ -z $only && $current == -* ]]; then
        action="words $options"
    elif [[ -n $commands ]]; then
        action="words $commands"
    elif ((${#arguments[@]})); then
        # The action of a repeated argument ends with three dots.
        word=${arguments[${#arguments[@]} - 1]}
        action=${arguments[count]-none}
        ((count >= ${#arguments[@]})) && [[ $word == *... ]] && action=$word
        action=${action%...}
    fi
    case $action in
        '' | none) return ;;
        files) compopt -o default; return ;;
        directories) compopt -o dirnames; return ;;
        words\ *) read -r -a names <<<"${action#words }" ;;
        *)
            while IFS=$'\t' read -r word _; do
                names+=("$word")
            done < <(command sluice complete --quoted "$action" "${words[@]}" </dev/null 2>/dev/null)
            ;;
    esac
    local text
    for word in "${names[@]}"; do
        case $current in
            \"*) [[ $word == *[\"\$\`\\!]* ]] && continue; text=\"$word ;;
            \'*) [[ $word == *\'* ]] && continue; text=\'$word ;;
            *) printf -v text %q "$word" ;;
        esac
        if [[ $text == "$current"* ]]; then
            text=$lead$text
            COMPREPLY+=("${text:strip}")
        fi
    done
}
"""


def bash_script(programs: tuple[CommandSyntax, ...]) -> str:
    """Return the script for some programs."""
    names = ", ".join(program.name for program in programs)
    parts = [f"# Completion of {names} for bash. Made by `sluice completion bash`.", _LIBRARY.rstrip("\n")]
    for program in programs:
        cases = "\n".join(line for command in program.walk() for line in _case(command))
        parts.append(f"""
__{program.name}_syntax() {{
    case $1 in
{cases}
    esac
}}
_{program.name}() {{ __sluice_complete {program.name} "$2"; }}
complete -F _{program.name} {program.name}""")
    return "\n".join(parts) + "\n"


def _case(command: CommandSyntax) -> Iterator[str]:
    yield f"        {shlex.quote(command.name)})"
    yield f"            options={shlex.quote(' '.join(name for option in command.options for name in option.names))}"
    if command.commands:
        names = (each.name.rpartition(" ")[2] for each in command.commands)
        yield f"            commands={shlex.quote(' '.join(names))}"
    values = [
        f"[{name}]={shlex.quote(_action(complete_option(command, option)))}"
        for option in command.options
        if option.value and not option.optional_value
        for name in option.names
    ]
    if values:
        yield f"            values=({' '.join(values)})"
    arguments = [
        shlex.quote(_action(complete_argument(command, each)) + ("..." if each.repeated else ""))
        for each in command.arguments
    ]
    if arguments:
        yield f"            arguments=({' '.join(arguments)})"
    yield "            ;;"


def _action(completion: ValueCompletion) -> str:
    if completion.source is ValueSource.WORDS:
        return " ".join([completion.source, *completion.words])
    return str(completion.source)
